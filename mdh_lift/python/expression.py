"""The three functions of the MDH project's DSL: ``out_view``, ``md_hom``, ``inp_view``.

    def matvec(I, K):
        @mdh(out(w=Buffer[fp32]), inp(M=Buffer[fp32], v=Buffer[fp32]))
        def mdh_matvec():
            def f(out, inp):
                out["w"] = inp["M"] * inp["v"]
            return (
                out_view[fp32](w=[lambda i, k: (i)]),
                md_hom[I, K](f, (CC, PW(scalar_plus))),
                inp_view[fp32, fp32](M=[lambda i, k: (i, k)], v=[lambda i, k: (k)]),
            )
        return mdh_matvec

    matvec(512, 4096)(w, M, v)

An expression has no loops that could run instead: where its kernel cannot be used, the reference interpreter
computes the result.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frontend_py import operators
from frontend_py.factory import operator_of
from frontend_py.files import PythonFile, Scope
from frontend_py.functions import Functions, user_call
from frontend_py.operators import Val
from frontend_py.read import FunctionRead
from frontend_py.statements import MAX_READINGS, Names, Out, Statements, Types, plain
from lifter.lift import LIFTED, LiftedNest
from lifter.loop_nest import Loop, LoopNest, NestStmt
from mdh_core.combine import CC as CONCATENATION
from mdh_core.combine import CombineFunction, CombineOp, left, ps, pw, right, tuple_operator
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import (
    INT64,
    Affine,
    Assign,
    Const,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    Stmt,
    Type,
    Var,
    affine_expr,
)
from mdh_core.interpreter import BufferValue, run_steps
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
from mdh_core.rules import verify
from mdh_core.source import NO_SPAN
from mdh_lift.python.clauses import BufferType, Clause, Function, Operator, function_text
from mdh_lift.python.scope import Records, RuntimeScope, source_of, type_of


class Index:
    """An iterator in an index function: linear expressions only."""

    def __init__(self, value: Affine) -> None:
        self.value = value

    def _with(self, other: object, sign: int = 1) -> Index:
        if isinstance(other, Index):
            return Index(self.value + other.value * sign)
        if isinstance(other, int):
            return Index(self.value + other * sign)
        raise TypeError(f"an index function adds {other!r}")

    def __add__(self, other: object) -> Index:
        return self._with(other)

    __radd__ = __add__

    def __sub__(self, other: object) -> Index:
        return self._with(other, -1)

    def __rsub__(self, other: object) -> Index:
        return Index(-self.value)._with(other)

    def __neg__(self) -> Index:
        return Index(-self.value)

    def __mul__(self, factor: object) -> Index:
        if not isinstance(factor, int):
            raise TypeError(f"an index function multiplies by {factor!r}")
        return Index(self.value * factor)

    __rmul__ = __mul__


IndexFunction = Callable[..., Any]


@dataclass(frozen=True)
class View:
    """``out_view[...](...)`` or ``inp_view[...](...)``; an out_view composes with ``md_hom`` by a call."""

    accesses: Mapping[str, Sequence[IndexFunction]]

    def __call__(self, applied: Applied) -> Expression:
        return Expression(self, applied.hom, applied.inp)


class _Views:
    def __getitem__(self, types_: Any) -> Callable[..., View]:
        return self

    def __call__(self, **accesses: Any) -> View:
        given = {n: list(a) if isinstance(a, list | tuple) else [a] for n, a in accesses.items()}
        return View(given)


out_view, inp_view = _Views(), _Views()


@dataclass(frozen=True)
class Hom:
    sizes: tuple[int, ...]
    function: Any
    operators: tuple[Any, ...]

    def __call__(self, inp: View) -> Applied:
        return Applied(self, inp)


@dataclass(frozen=True)
class Applied:
    hom: Hom
    inp: View


@dataclass(frozen=True)
class Expression:
    out: View
    hom: Hom
    inp: View


class _MdHom:
    def __getitem__(self, sizes: Any) -> Callable[..., Hom]:
        values = sizes if isinstance(sizes, tuple) else (sizes,)
        whole = tuple(int(n) for n in values)

        def md_hom_of_sizes(function: Any, ops: Any) -> Hom:
            return Hom(whole, function, tuple(ops) if isinstance(ops, tuple | list) else (ops,))

        return md_hom_of_sizes


md_hom = _MdHom()
scalar_plus, scalar_times = Function("+"), Function("*")
scalar_max, scalar_min = Function("max"), Function("min")
fp32, fp64 = np.float32, np.float64
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64


def is_expression(function: types.FunctionType) -> bool:
    """Does the function build an expression, instead of looping?"""
    return not inspect.signature(function).parameters and bool(
        {"md_hom", "out_view", "inp_view"} & set(function.__code__.co_names + function.__code__.co_freevars)
    )


# --------------------------------------------------------------------------- scalar functions


class _Reader(Statements):
    """``f(out, inp, i, ...)``: results go to ``out[...]``, values come from ``inp[...]``.

    Also ``combine(res, lhs, rhs)``: ``sources`` says what a subscript of each parameter stands for.
    """

    def __init__(
        self, file: PythonFile, scope: Scope, node: ast.FunctionDef, types_: Types,
        sources: Mapping[str, Callable[[str, int], Expr | None]], dims: Mapping[str, str],
        functions: Functions,
    ) -> None:  # fmt: skip
        super().__init__(file, scope, Names(frozenset(dims.values())), types_)
        self.target = node.args.args[0].arg
        self.sources, self.dims, self.functions = sources, dims, functions
        self.calls: dict[str, None] = {}
        self.results: dict[str, Val] = {}

    def is_variable(self, name: str) -> bool:
        return name in self.dims or name in self.sources or name == self.target or super().is_variable(name)

    def variable(self, name: str, node: ast.AST) -> Val | None:
        if name in self.dims and self.find(name) is None:
            return Val(Var(self.dims[name], INT64), weak=True)
        return super().variable(name, node)

    def _key(self, node: ast.expr, base: str) -> tuple[str, int] | None:
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))) if name == base:
                return key, 0
            case ast.Subscript(
                value=ast.Name(id=name),
                slice=ast.Tuple(elts=[ast.Constant(value=str(key)), ast.Constant(value=int(k))]),
            ) if name == base:
                return key, k
            case ast.Attribute(value=ast.Name(id=name), attr=key) if name == base:
                return key, 0
        return None

    def convert(self, node: ast.expr) -> Val:
        for base, source in self.sources.items():
            key = self._key(node, base)
            if key is not None:
                e = source(*key)
                if e is None:
                    raise refuse("MDH409", f"`{base}` has no `{key[0]}`", self.span(node))
                return Val(e)
        return super().convert(node)

    def call_user(self, name: str, function: Any, node: ast.Call) -> Val:
        return user_call(self, self.functions, self.calls, name, function, node)

    def statement(self, s: ast.stmt, first: frozenset[str]) -> list[Out]:
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            key = self._key(s.targets[0], self.target)
            if key is not None:
                if len(self.scopes) > 1:
                    raise self.unsupported("a result under a condition", s)
                self.results[key[0]] = self.convert(s.value)
                return []
        return super().statement(s, first)

    def for_loop(self, node: ast.For) -> list[Out]:
        raise self.unsupported("a loop", node)

    def return_(self, node: ast.Return) -> list[Out]:
        raise self.unsupported("`return`", node)


def _read(
    function: types.FunctionType, records: Records,
    sources: Sequence[Callable[[str, int], Expr | None]], dims: Sequence[str], functions: Functions,
) -> tuple[tuple[Stmt, ...], dict[str, Val], tuple[str, ...]]:  # fmt: skip
    file, node = source_of(function)
    scope = RuntimeScope(function, file, records)
    names = [a.arg for a in node.args.args]
    if len(names) < 1 + len(sources):
        raise refuse("MDH406", f"`{node.name}` takes too few parameters", file.head(node))
    by_name = dict(zip(names[1:], sources, strict=False))
    positions = dict(zip(names[1 + len(sources) :], dims, strict=False))
    for a in names[1 + len(sources) :]:
        if a in dims:
            positions[a] = a
    found = Types()
    for _ in range(MAX_READINGS):
        found.changed = False
        reader = _Reader(file, scope, node, found, by_name, positions, functions)
        body = reader.block(node.body)
        if reader.problems:
            raise Refusal(reader.problems[0])
        if not found.changed:
            return plain(body), reader.results, tuple(reader.calls)
    raise refuse("MDH212", "the types of the variables could not be told", file.head(node))


# --------------------------------------------------------------------------- the program


@dataclass
class Built:
    """The program with its sizes as parameters, and the values that they have."""

    read: FunctionRead
    lifted: LiftedNest
    params: dict[str, int]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    shapes: dict[str, tuple[str, int]] = field(default_factory=dict)  # parameter -> buffer and dimension


def build(name: str, e: Expression, clauses: Sequence[Clause], records: Records, fp: str) -> Built:
    """The program of an expression; raises ``Refusal`` or ``TypeError`` where it is none."""
    declared = {n: b for c in clauses for n, b in c.buffers.items()}
    element = {n: _element(n, declared, records) for n in (*e.out.accesses, *e.inp.accesses)}
    dims = _dims(e)
    sizes = {d: f"mdh_n_{d}" for d in dims}
    shapes: dict[str, tuple[str, int]] = {}
    buffers: list[Buffer] = []
    accesses: list[Access] = []
    numbers: dict[str, list[int]] = {}
    for n, functions in e.inp.accesses.items():
        for f in functions:
            numbers.setdefault(n, []).append(len(accesses))
            accesses.append(Access(n, _index(f, dims)))
    outputs = {n: _index(functions[0], dims) for n, functions in e.out.accesses.items()}
    if any(len(functions) != 1 for functions in e.out.accesses.values()):
        raise refuse("MDH208", "an output with several accesses")
    for n in dict.fromkeys((*e.inp.accesses, *outputs)):
        rank = len(outputs[n]) if n in outputs else len(accesses[numbers[n][0]].index)
        extents: list[Affine | None] = [None] * rank
        for k in range(1, rank):
            shapes[f"mdh_{n}_{k}"] = (n, k)
            extents[k] = Affine.of(f"mdh_{n}_{k}")
        buffers.append(Buffer(n, element[n], tuple(extents), base=n))

    def operand(key: str, k: int) -> Expr | None:
        if key not in numbers or k >= len(numbers[key]):
            return None
        return Operand(numbers[key][k], element[key])

    pure = Functions()
    called: tuple[str, ...] = ()
    if isinstance(e.hom.function, types.FunctionType):
        body, results, called = _read(e.hom.function, records, [operand], dims, pure)
    else:
        body, results = (), {next(iter(outputs)): _all_operands(e.hom.function, accesses, element)}
    missing = set(outputs) - set(results)
    if missing:
        raise refuse("MDH408", f"the scalar function gives no value for `{sorted(missing)[0]}`")
    values = tuple(
        operators.cast(results[n].expr, t, NO_SPAN)
        if isinstance(t := element[n], ScalarType)
        else results[n].expr
        for n in outputs
    )
    kinds = tuple(element[n] for n in outputs)
    if len(e.hom.operators) != len(dims) or len(e.hom.sizes) != len(dims):
        raise refuse("MDH403", f"{len(e.hom.operators)} combine operators for {len(dims)} dimensions")
    combine = tuple(_operator(op, tuple(outputs), kinds, records, pure) for op in e.hom.operators)
    params = (*(Param(p, INT64, p) for p in sizes.values()), *(Param(p, INT64, p) for p in shapes))
    program = MdhProgram(
        name, params, tuple(buffers), InputView(tuple(accesses)),
        MdHom(tuple(Dim(d, Size(Affine.of(sizes[d]))) for d in dims), ScalarFunction(values, body), combine),
        OutputView(
            (None,) * len(outputs),
            tuple(Store(n, index, Result(c, kinds[c])) for c, (n, index) in enumerate(outputs.items())),
        ),
        pure.closure(called), fp,
    )  # fmt: skip
    broken = verify(program)
    if broken:
        raise refuse("MDH209", broken[0])
    nest = LoopNest(name, name, "0", params, tuple(buffers), (), _touching(program, sizes), program.functions)
    read = FunctionRead(nest, None, {}, {b.name: b.name for b in buffers})  # type: ignore[arg-type]
    lifted = LiftedNest(nest, LIFTED, (program,), ())
    values_of = {sizes[d]: n for d, n in zip(dims, e.hom.sizes, strict=True)}
    return Built(read, lifted, values_of, tuple(outputs), tuple(e.inp.accesses), shapes)


def _element(name: str, declared: Mapping[str, BufferType], records: Records) -> Type:
    if name not in declared:
        raise TypeError(f"`{name}` is not declared in `out(...)` or `inp(...)`")
    t = type_of(np.dtype(declared[name].dtype), records)
    if t is None:
        raise TypeError(f"`{name}` is declared with the dtype {declared[name].dtype}")
    return t


def _dims(e: Expression) -> list[str]:
    functions = [f for view in (e.out, e.inp) for fs in view.accesses.values() for f in fs]
    names = [list(inspect.signature(f).parameters) for f in functions]
    if any(len(n) != len(e.hom.sizes) for n in names):
        raise refuse("MDH403", f"an index function has not {len(e.hom.sizes)} parameters")
    return names[0] if names else [f"i{k + 1}" for k in range(len(e.hom.sizes))]


def _index(f: IndexFunction, dims: Sequence[str]) -> tuple[Affine, ...]:
    found = f(*(Index(Affine.of(d)) for d in dims))
    items = found if isinstance(found, tuple) else (found,)
    out = []
    for i in items:
        if isinstance(i, Index):
            out.append(i.value)
        elif isinstance(i, int):
            out.append(Affine.number(i))
        else:
            raise refuse("MDH201", f"an index function yields `{i!r}`")
    return tuple(out)


def _all_operands(f: Any, accesses: Sequence[Access], element: Mapping[str, Type]) -> Val:
    """``mul`` and its like, applied to all operands in order."""
    word = function_text(f)
    if word not in ("+", "*"):
        raise refuse("MDH204", f"`{word}` is no scalar function that can be read")
    out: Val | None = None
    for k, a in enumerate(accesses):
        v = Val(Operand(k, element[a.buffer]))
        out = v if out is None else operators.binary(word, out, v, NO_SPAN)
    if out is None:
        raise refuse("MDH204", "a scalar function without inputs")
    return out


def _operator(
    op: Any, names: Sequence[str], kinds: Sequence[Type], records: Records, functions: Functions
) -> CombineOp:
    if not isinstance(op, Operator):
        raise TypeError(f"`{op!r}` is no combine operator; use CC, PW(f) or PS(f)")
    if op.kind == "cc":
        return CONCATENATION
    given = op.functions[0] if len(op.functions) == 1 else op.functions
    if isinstance(given, types.FunctionType):
        whole = _user_combine(given, names, kinds, records, functions)
    else:
        words = [function_text(f) for f in (given if isinstance(given, tuple) else (given,) * len(kinds))]
        nest = LoopNest("", "", "", (), (), (), ())
        whole = tuple_operator(
            tuple(operator_of(w, t, nest, NO_SPAN) for w, t in zip(words, kinds, strict=True))
        )
    return pw(whole) if op.kind == "pw" else ps(whole)


def _user_combine(
    f: types.FunctionType, names: Sequence[str], kinds: Sequence[Type], records: Records, functions: Functions
) -> CombineFunction:
    """``combine(res, lhs, rhs)`` over records that are keyed by the outputs' names."""

    def side(make: Callable[[int, Type], Var]) -> Callable[[str, int], Expr | None]:
        return lambda key, k: make(names.index(key), kinds[names.index(key)]) if key in names else None

    body, results, called = _read(f, records, [side(left), side(right)], (), functions)
    if body or called:
        raise refuse("MDH406", f"`{f.__name__}` does more than assign results")
    values = []
    for n, t in zip(names, kinds, strict=True):
        if n not in results:
            raise refuse("MDH406", f"`{f.__name__}` gives no value for `{n}`")
        e = results[n].expr
        values.append(operators.cast(e, t, NO_SPAN) if isinstance(t, ScalarType) else e)
    exact = not any(isinstance(t, ScalarType) and t.is_float for t in kinds)
    return CombineFunction(f.__name__, tuple(kinds), tuple(values), None, exact, promised=True)


def _touching(p: MdhProgram, sizes: Mapping[str, str]) -> tuple[NestStmt, ...]:
    """Loops that touch what the program touches: what its subscripts are checked with."""
    types_ = {b.name: b.type for b in p.buffers}
    touched = [*((a.buffer, a.index) for a in p.inp.accesses), *((s.buffer, s.index) for s in p.out.stores)]
    body: tuple[NestStmt, ...] = tuple(
        Assign(Var("mdh_touched", INT64), Load(buffer, tuple(map(affine_expr, index)), types_[buffer]))
        for buffer, index in touched
    )
    for d in reversed(p.hom.dims):
        body = (Loop(d.name, INT64, Const(0, INT64), Var(sizes[d.name], INT64), 1, body, d.name),)
    return body


# --------------------------------------------------------------------------- by the interpreter


def interpreted(
    lifted: LiftedNest, params: Mapping[str, int], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """The reference interpreter on arrays; slow."""
    values = {
        name: BufferValue([_plain(x) for x in a.reshape(-1).tolist()], a.shape) for name, a in arrays.items()
    }
    run_steps(lifted.program, params, values)
    for p in lifted.programs:
        for s in p.out.stores:
            a = arrays[s.buffer]
            a[...] = np.array(values[s.buffer].data, dtype=a.dtype).reshape(a.shape)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value
