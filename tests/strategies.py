"""Hypothesis strategies: random well-formed programs, sizes for them, and buffers.

    @given(programs(), st.data())
    def test_something(program, data):
        params = data.draw(sizes_for(program))
        buffers = buffers_for(program, params, data.draw(generators()))

``programs()``: an ``MdhProgram`` that obeys all rules.  1 to 4 dimensions, any mix of cc, pw and ps with
one function, several accesses with offsets and strides, ``float``, ``int32`` or ``int64``; initial values
(accumulating ones, too), epilogues, ``at_last``; a domain, whose constraints may be indices, too.  Keyword
arguments narrow it down.

``sizes_for(program)``: a value for every parameter; sizes are 0, 1 or prime, and the number of points is
at most ``max_points``.

``buffers_for(program, params, rng)``: a ``BufferValue`` for every buffer, as large as needed, filled with
small integers of the buffer's type.

``copy_of(buffers)``: a deep copy, to run a second implementation on the same contents.

Values stay small: every result is exact in every type, so any order of combination must give
the same bits (``*`` combines 1 and -1 only).  Empty dimensions occur; see ``interpreter``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from math import prod

from hypothesis import strategies as st

from mdh_core.combine import (
    CC,
    CombineFunction,
    CombineOp,
    arg_operator,
    ps,
    pw,
    scalar_operator,
    tuple_operator,
)
from mdh_core.evaluate import Value, convert
from mdh_core.expr import (
    FLOAT,
    INT32,
    INT64,
    Affine,
    Binary,
    Call,
    Cast,
    Const,
    Constraint,
    Expr,
    Load,
    Operand,
    RecordType,
    Result,
    ScalarType,
    Select,
    Type,
    Unary,
    Var,
    affine_expr,
)
from mdh_core.interpreter import BufferValue, Index, empty_buffers, integers
from mdh_core.ir import (
    Access,
    Buffer,
    Dim,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    Param,
    ScalarFunction,
    Size,
    Store,
)

NAMES = ("i", "j", "k", "l")
TYPES = (FLOAT, INT32, INT64)
OPERATORS = ("+", "*", "min", "max", "^", "argmin", "argmax", "(+, max)")
SIZES = (0, 1, 2, 3, 5, 7, 11, 13)
C_TYPES = {FLOAT: "float", INT32: "int32_t", INT64: "int64_t"}
FACTOR = Param("alpha", INT32, "alpha", "int32_t")


def generators() -> st.SearchStrategy[random.Random]:
    """A seeded generator of random numbers."""
    return st.integers(0, 2**32).map(random.Random)


# --------------------------------------------------------------------------- sizes and buffers


@st.composite
def sizes_for(
    draw: st.DrawFn, program: MdhProgram, max_points: int = 300, sizes: tuple[int, ...] = SIZES
) -> dict[str, Value]:
    """A value for every parameter of a program, with at most ``max_points`` points in all."""
    params: dict[str, Value] = {}
    for q in program.params:
        assert isinstance(q.type, ScalarType)
        used = any(q.name in d.size.span.names for d in program.hom.dims)
        number = draw(st.sampled_from(sizes) if used else st.integers(1, 3))
        params[q.name] = convert(number, q.type)
    while prod(program.sizes(integers(params)).values()) > max_points:
        largest = max(integers(params), key=lambda name: integers(params)[name])
        params[largest] = max(n for n in (0, *sizes) if n < integers(params)[largest])
    return params


def buffers_for(
    program: MdhProgram, params: Mapping[str, Value], rng: random.Random, reach: int = 3
) -> dict[str, BufferValue]:
    """Buffers that are as large as the program needs, filled with integers from -reach to reach."""
    buffers = empty_buffers(program, params)
    for name, buffer in buffers.items():
        t = program.buffer(name).type
        buffer.data[:] = [random_value(t, rng, reach) for _ in buffer.data]
    return buffers


def random_value(t: Type, rng: random.Random, reach: int = 3) -> Value:
    if isinstance(t, RecordType):
        return tuple(convert(rng.randint(-reach, reach), u) for _, u in t.fields)
    return convert(rng.randint(-reach, reach), t)


def copy_of(buffers: Mapping[str, BufferValue]) -> dict[str, BufferValue]:
    return {name: buffer.copy() for name, buffer in buffers.items()}


def contents(buffers: Mapping[str, BufferValue]) -> dict[str, tuple[Index, list[Value]]]:
    """What tests compare."""
    return {name: (buffer.extents, buffer.data) for name, buffer in buffers.items()}


# --------------------------------------------------------------------------- programs


@st.composite
def programs(
    draw: st.DrawFn,
    max_dims: int = 4,
    kinds: tuple[str, ...] = ("cc", "pw", "ps"),
    types: tuple[ScalarType, ...] = TYPES,
    operators: tuple[str, ...] = OPERATORS,
    extras: bool = True,  # initial values, epilogues and at_last
    domains: bool = True,
) -> MdhProgram:
    """A well-formed program; ``rules.verify`` finds nothing."""
    rank = draw(st.integers(1, max_dims))
    of_dim = dict(
        zip(NAMES, draw(st.lists(st.sampled_from(kinds), min_size=rank, max_size=rank)), strict=False)
    )
    dims = tuple(Dim(name, draw(_size(name))) for name in of_dim)
    t = draw(st.sampled_from(types))
    f = _function(draw(st.sampled_from(operators)), t, [n for n, k in of_dim.items() if k != "cc"])
    ops: dict[str, CombineOp] = {"cc": CC, "pw": pw(f), "ps": ps(f)}
    accesses, inputs = _accesses(draw, tuple(of_dim), t)
    scalar, component_types = _scalar(draw, f, t, of_dim, len(accesses))
    initial, stores, outputs = _outputs(draw, f, component_types, of_dim, extras)
    sizes = sorted({n for d in dims for n in d.size.span.names})
    domain: tuple[Constraint, ...] = ()
    if domains and draw(st.booleans()):
        last = {n for store in stores for n in store.at_last}
        domain = _domain(draw, of_dim, last, sizes)
        accesses = tuple(_bounded_index(draw, a, domain) for a in accesses)
    return MdhProgram(
        "random",
        (*(Param(n, INT32, n, "int32_t") for n in sizes), FACTOR),
        (*inputs, *outputs),
        InputView(accesses),
        MdHom(dims, scalar, tuple(ops[k] for k in of_dim.values()), domain),
        OutputView(initial, stores),
    )


def _domain(
    draw: st.DrawFn, of_dim: dict[str, str], last: set[str], sizes: list[str]
) -> tuple[Constraint, ...]:
    """Up to three constraints over the dimensions that may be cut, and parameters."""
    scans = "ps" in of_dim.values()
    cut = [n for n, k in of_dim.items() if n not in last and k != "ps" and not (scans and k == "pw")]
    out = []
    for _ in range(draw(st.integers(1, 3))):
        used = draw(st.lists(st.sampled_from(cut), min_size=1, max_size=3, unique=True)) if cut else []
        value = Affine.number(draw(st.integers(-2, 4)))
        for k, name in enumerate(used):
            value = value + Affine.of(name, draw(st.sampled_from((1, 1, 2) if k % 2 else (-1, -1, 1, -2))))
        if draw(st.integers(0, 3)) == 0:
            value = value + Affine.of(draw(st.sampled_from([*sizes, FACTOR.name])))
        out.append(Constraint(value, draw(st.integers(0, 5)) == 0))
    return tuple(out)


def _bounded_index(draw: st.DrawFn, a: Access, domain: tuple[Constraint, ...]) -> Access:
    """Sometimes with an index that only the domain keeps from being negative."""
    if not a.index or draw(st.booleans()):
        return a
    return replace(a, index=(*a.index[:-1], draw(st.sampled_from(domain)).value))


def _size(name: str) -> st.SearchStrategy[Size]:
    """Mostly a parameter; also a number, a parameter less 1, a step of 2."""
    parameter = Affine.of("N" + name)
    return st.sampled_from(
        [Size(parameter)] * 4 + [Size(Affine.number(2)), Size(parameter - 1), Size(parameter, 2)]
    )


def _function(name: str, t: ScalarType, combined: list[str]) -> CombineFunction:
    """The operator, or ``+`` where it does not apply to the type."""
    if name.startswith("arg"):
        return arg_operator(name, t, (), len(combined)) if combined else _function("+", t, combined)
    if name == "(+, max)":
        return tuple_operator((_function("+", t, combined), _function("max", t, combined)))
    f = scalar_operator(name, t)
    return _function("+", t, combined) if f is None else f


def _accesses(
    draw: st.DrawFn, dims: tuple[str, ...], t: ScalarType
) -> tuple[tuple[Access, ...], list[Buffer]]:
    """One to three accesses to one or two buffers."""
    ranks = {"A": draw(st.integers(0, 3)), "B": draw(st.integers(1, 2))}
    names = draw(st.lists(st.sampled_from(sorted(ranks)), min_size=1, max_size=3))
    accesses = tuple(Access(n, tuple(draw(_index(dims)) for _ in range(ranks[n]))) for n in names)
    return accesses, [_buffer(n, t, ranks[n]) for n in sorted(set(names))]


def _buffer(name: str, t: ScalarType, rank: int) -> Buffer:
    return Buffer(name, t, (None,) * rank, base=name if rank else f"&{name}", c_type=C_TYPES[t])


@st.composite
def _index(draw: st.DrawFn, dims: tuple[str, ...]) -> Affine:
    """``i``, ``2*i + 1``, ``i + j``, ``2``."""
    chosen = draw(st.lists(st.sampled_from(dims), max_size=2, unique=True))
    out = Affine.number(draw(st.sampled_from((0, 0, 1, 2))))
    for name in chosen:
        out = out + Affine.of(name, draw(st.sampled_from((1, 1, 1, 2))))
    return out


def _scalar(
    draw: st.DrawFn, f: CombineFunction, t: ScalarType, of_dim: dict[str, str], operands: int
) -> tuple[ScalarFunction, tuple[Type, ...]]:
    """One expression per component of the function; the indices where it asks for positions."""
    combined = [n for n, k in of_dim.items() if k != "cc"]
    if f.name.startswith("arg"):
        positions = (Var(n, INT64) for n in combined)
        return ScalarFunction((draw(_value(t, operands)), *positions)), f.types
    results = [draw(_value(t, operands)) for _ in f.types]
    if f.name == "*":
        results = [_sign(e, t) for e in results]
    return ScalarFunction(tuple(results)), f.types


def _sign(e: Expr, t: ScalarType) -> Expr:
    negative = Binary("<", e, _number(0, t), INT32)
    return Select(negative, _number(-1, t), _number(1, t), t)


def _number(value: int, t: ScalarType) -> Const:
    return Const(convert(value, t), t)


def _value(t: ScalarType, operands: int) -> st.SearchStrategy[Expr]:
    """A small expression over the operands."""
    operand = st.integers(0, operands - 1).map(lambda k: Operand(k, t))
    leaf = operand | st.integers(-2, 2).map(lambda n: _number(n, t))
    pair = st.tuples(st.sampled_from("+-*"), operand, leaf).map(lambda e: Binary(e[0], e[1], e[2], t))
    choice = st.tuples(operand, leaf, operand).map(
        lambda e: Select(Binary("<", e[0], e[1], INT32), e[2], Unary("-", e[0], t), t)
    )
    if not t.is_float:
        return operand | pair | choice
    suffix = "f" if t.bits == 32 else ""
    one = st.tuples(st.sampled_from(("fabs", "floor", "rint")), operand | pair).map(
        lambda e: Call(e[0] + suffix, (e[1],), t)
    )
    two = st.tuples(st.sampled_from(("fmin", "fmax")), operand, leaf).map(
        lambda e: Call(e[0] + suffix, (e[1], e[2]), t)
    )
    return operand | pair | choice | one | two


def _outputs(
    draw: st.DrawFn, f: CombineFunction, types: tuple[Type, ...], of_dim: dict[str, str], extras: bool
) -> tuple[tuple[Expr | None, ...], tuple[Store, ...], list[Buffer]]:
    """Initial values, one store per component, and the buffers that are stored into."""
    kept = [n for n, k in of_dim.items() if k != "pw"]
    last = tuple(n for n in kept if extras and draw(st.integers(0, 5)) == 0)
    index = [
        Affine.of(n, draw(st.sampled_from((1, 1, 2)))) + draw(st.sampled_from((0, 0, 1)))
        for n in draw(st.permutations([n for n in kept if n not in last]))
    ]
    is_arg = f.name.startswith("arg")
    combines, scans = set(of_dim.values()) != {"cc"}, "ps" in of_dim.values()
    starts = combines and extras and draw(st.booleans())  # all components have an initial value, or none
    stores: list[Store] = []
    initial: list[Expr | None] = []
    buffers: list[Buffer] = []
    for c, t in enumerate(types):
        assert isinstance(t, ScalarType)
        place = Load(f"out{c}", tuple(affine_expr(a) for a in index), t)
        value: Expr = Result(c, t)
        if extras and not is_arg and draw(st.integers(0, 3)) == 0:
            value = draw(st.sampled_from(_epilogues(value, place, t)))
        start: list[Expr] = [_number(1, t), _number(-1, t), *([] if scans else [place])]
        if is_arg:  # initial values have no index in scanned dimensions
            start = [_number(2 if c == 0 else -1, t)]
        initial.append(draw(st.sampled_from(start)) if starts else None)
        stores.append(Store(f"out{c}", tuple(index), value, last))
        buffers.append(_buffer(f"out{c}", t, len(index)))
    return tuple(initial), tuple(stores), buffers


def _epilogues(value: Expr, place: Load, t: ScalarType) -> list[Expr]:
    """alpha * result, result + old, -result."""
    alpha = Cast(Var("alpha", INT32), t) if t != INT32 else Var("alpha", INT32)
    return [Binary("*", alpha, value, t), Binary("+", value, place, t), Unary("-", value, t)]
