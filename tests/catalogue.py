"""The catalogue of mdh.md section 3 as hand-written programs, and a few of our own beyond it.

``CATALOGUE`` has the rows as published: no initial values, plain results.  ``BEYOND`` uses what our
form adds: initial values, epilogues, ``at_last``, arg-min.  ``DOMAINS`` has programs whose points are no box,
and ones whose scalar function loads.  ``small_params`` gives each program a size.

    program("matvec", "i:I k:K", "cc +", {"M": FLOAT, "v": FLOAT}, "M[i, k] v[k]", {"w": FLOAT}, "w[i]", ...)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from mdh_core.combine import (
    CC,
    CombineFunction,
    CombineOp,
    arg_operator,
    ps,
    pw,
    scalar_operator,
    tuple_operator,
    user_operator,
)
from mdh_core.evaluate import Value
from mdh_core.expr import (
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    UINT8,
    Affine,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Constraint,
    Declare,
    Expr,
    Field,
    Function,
    If,
    Load,
    MakeRecord,
    Operand,
    RecordType,
    Result,
    Return,
    ScalarType,
    Select,
    Stmt,
    Type,
    Var,
    While,
    affine_expr,
    rewrite,
    walk,
)
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

# --------------------------------------------------------------------------- building programs


def c_name(t: Type) -> str:
    """The type in C, with <stdint.h>."""
    return f"{t}_t" if isinstance(t, ScalarType) and t.is_integer and t.kind != "bool" else str(t)


def affine(s: str) -> Affine:
    """An affine expression from text such as ``p*2 + r - 1``."""
    names = {n: Affine.of(n) for n in re.findall(r"[A-Za-z_]\w*", s)}
    value = eval(s, {}, names)
    return Affine.number(value) if isinstance(value, int) else value


def places(s: str) -> list[tuple[str, tuple[Affine, ...]]]:
    """Buffer and index of each place in text such as ``I[p + r, q + s] F[r, s] out[]``."""
    return [
        (name, tuple(affine(part) for part in index.split(",") if part.strip()))
        for name, index in re.findall(r"(\w+)\[([^\]]*)\]", s)
    ]


def constraint(s: str) -> Constraint:
    """A constraint from text such as ``i*2 + j <= N``, ``j > i`` or ``i == j*2``."""
    left, relation, right = re.split(r"\s*(<=|>=|==|<|>)\s*", s)
    a, b = affine(left), affine(right)
    value = b - a if relation.startswith("<") else a - b
    return Constraint(value - (len(relation) == 1), relation == "==")


def load(place: str, t: Type) -> Load:
    """A load from text such as ``C[i, j]``."""
    ((name, index),) = places(place)
    return Load(name, tuple(affine_expr(a) for a in index), t)


def operator(name: str, t: ScalarType) -> CombineFunction:
    f = scalar_operator(name, t)
    assert f is not None, (name, t)
    return f


def number(value: float, t: ScalarType) -> Const:
    return Const(float(value) if t.is_float else int(value), t)


def binary(op: str, a: Expr, b: Expr) -> Binary:
    assert isinstance(a.type, ScalarType)
    comparison = op in ("<", "<=", ">", ">=", "==", "!=", "&&", "||")
    return Binary(op, a, b, INT32 if comparison else a.type)


def total(terms: Iterable[Expr]) -> Expr:
    first, *rest = terms
    for term in rest:
        first = binary("+", first, term)
    return first


def program(
    name: str,
    dims: str,  # "i:I k:K", a size being a parameter or a number
    ops: str,  # "cc pw ps", the function being ``combine``
    types: dict[str, Type],  # of the buffers
    inp: str,
    out: str,
    f: tuple[Expr, ...],
    *,
    combine: CombineFunction | None = None,
    body: tuple[Stmt, ...] = (),
    params: tuple[Param, ...] = (),
    functions: tuple[Function, ...] = (),
    initial: tuple[Expr | None, ...] | None = None,
    values: tuple[Expr, ...] | None = None,  # what is stored, by default the components in order
    at_last: tuple[str, ...] = (),
    domain: str = "",  # "j <= i, k > j"
) -> MdhProgram:
    """A program; every name in a size becomes an ``int`` parameter, extents are not declared."""
    sized = [tuple(d.split(":")) for d in dims.split()]
    constraints = tuple(constraint(c) for c in domain.split(", ") if c)
    sizes = {n for _, s in sized for n in affine(s).names} | {n for c in constraints for n in c.names}
    sizes = sorted(sizes - {n for n, _ in sized} - {q.name for q in params})
    accesses, stores = places(inp), places(out)
    ranks = {n: len(index) for n, index in (*accesses, *stores)}
    for e in (*f, *(initial or ()), *(values or ())):
        if e is not None:
            ranks |= {n.buffer: len(n.index) for n in walk(e) if isinstance(n, Load)}
    values = values or tuple(Result(c, e.type) for c, e in enumerate(f))
    kinds: dict[str, CombineOp] = {"cc": CC}
    if combine is not None:
        kinds |= {"pw": pw(combine), "ps": ps(combine)}
    return MdhProgram(
        name,
        (*(Param(n, INT32, n, "int") for n in sizes), *params),
        tuple(Buffer(n, t, (None,) * ranks[n], base=n, c_type=c_name(t)) for n, t in types.items()),
        InputView(tuple(Access(n, index) for n, index in accesses)),
        MdHom(
            tuple(Dim(n, Size(affine(s))) for n, s in sized),
            ScalarFunction(f, body),
            tuple(kinds[k] for k in ops.split()),
            constraints,
        ),
        OutputView(
            initial or (None,) * len(f),
            tuple(Store(n, i, v, at_last) for (n, i), v in zip(stores, values, strict=True)),
        ),
        functions,
    )


def small_params(p: MdhProgram) -> dict[str, Value]:
    """A value for each parameter, such that the program has a few hundred points at most."""
    few = (2, 3, 2, 2, 1) if len(p.hom.dims) > 4 else (3, 5, 4, 2, 3)
    out: dict[str, Value] = {}
    for k, q in enumerate(p.params):
        assert isinstance(q.type, ScalarType)
        out[q.name] = 0.5 if q.type.is_float else few[k % len(few)]
    return out


# --------------------------------------------------------------------------- 3.1 linear algebra

PLUS = operator("+", FLOAT)


def x(k: int, t: Type = FLOAT) -> Operand:
    return Operand(k, t)


def product(name: str, dims: str, ops: str, a: str, b: str, out: str) -> MdhProgram:
    """A contraction: the product of two tensors, summed."""
    buffers: dict[str, Type] = {place.split("[")[0]: FLOAT for place in (a, b, out)}
    f = (binary("*", x(0), x(1)),)
    return program(name, dims, ops, buffers, f"{a} {b}", out, f, combine=PLUS)


LINEAR_ALGEBRA = (
    product("dot", "k:K", "pw", "A[k]", "B[k]", "C[]"),
    product("matvec", "i:I k:K", "cc pw", "M[i, k]", "v[k]", "w[i]"),
    product("matmul", "i:I j:J k:K", "cc cc pw", "A[i, k]", "B[k, j]", "C[i, j]"),
    product("matmul_t", "i:I j:J k:K", "cc cc pw", "A[k, i]", "B[j, k]", "C[j, i]"),
    product("bmatmul", "b:NB i:I j:J k:K", "cc cc cc pw", "A[b, i, k]", "B[b, k, j]", "C[b, i, j]"),
)

# --------------------------------------------------------------------------- 3.2 convolutions

_MCC = "n:N p:P q:Q k:K r:R s:S c:NC"
_OPS = "cc cc cc cc pw pw pw"
CONVOLUTIONS = (
    product("conv2d", "p:P q:Q r:R s:S", "cc cc pw pw", "I[p + r, q + s]", "F[r, s]", "O[p, q]"),
    product("mcc", _MCC, _OPS, "I[n, p + r, q + s, c]", "F[k, r, s, c]", "O[n, p, q, k]"),
    product("mcc_strided", _MCC, _OPS, "I[n, p*2 + r, q*2 + s, c]", "F[k, r, s, c]", "O[n, p, q, k]"),
    product(
        "mcc_capsule",
        f"{_MCC} mi:2 mj:2 mk:2",
        f"{_OPS} cc cc pw",
        "I[n, p + r, q + s, c, mi, mk]",
        "F[k, r, s, c, mk, mj]",
        "O[n, p, q, k, mi, mj]",
    ),
)

# --------------------------------------------------------------------------- 3.3 quantum chemistry

CCSDT = ["gdab-efgc", "gdac-efgb", "gdbc-efga", "geab-dfgc", "geac-dfgb", "gebc-dfga"]
CCSDT += ["gfab-degc", "gfac-degb", "gfbc-dega"]


def ccsdt(instance: str) -> MdhProgram:
    a, b = (", ".join(letters) for letters in instance.split("-"))
    dims = " ".join(f"{letter}:N{letter}" for letter in "abcdefg")
    name = f"ccsdt_abcdef_{instance.replace('-', '_')}"
    return product(name, dims, "cc " * 6 + "pw", f"A[{a}]", f"B[{b}]", "C[a, b, c, d, e, f]")


CHEMISTRY = tuple(map(ccsdt, CCSDT))

# --------------------------------------------------------------------------- 3.4 Jacobi


def jacobi(name: str, dims: str, accesses: str, out: str) -> MdhProgram:
    """Equal weights: c times the sum of all accesses."""
    c = Param("c", FLOAT, "c", "float")
    n = len(places(accesses))
    f = (binary("*", Var("c", FLOAT), total(x(k) for k in range(n))),)
    ops = "cc " * len(dims.split())
    return program(name, dims, ops, {"I": FLOAT, "O": FLOAT}, accesses, out, f, params=(c,))


JACOBI = (
    jacobi("jacobi1d", "i:N", "I[i] I[i + 1] I[i + 2]", "O[i]"),
    jacobi(
        "jacobi2d",
        "i:N1 j:N2",
        "I[i, j + 1] I[i + 1, j] I[i + 1, j + 1] I[i + 1, j + 2] I[i + 2, j + 1]",
        "O[i, j]",
    ),
    jacobi(
        "jacobi3d",
        "i:N1 j:N2 k:N3",
        "I[i, j + 1, k + 1] I[i + 1, j, k + 1] I[i + 1, j + 1, k] I[i + 1, j + 1, k + 1] "
        "I[i + 1, j + 1, k + 2] I[i + 1, j + 2, k + 1] I[i + 2, j + 1, k + 1]",
        "O[i, j, k]",
    ),
)

# --------------------------------------------------------------------------- 3.5 data mining, histograms

RECORD = RecordType("record", (("id", INT32), ("name", INT32), ("year", INT32), ("zip", INT32)))
MATCH = RecordType("match", (("id_new", INT32), ("id_old", INT32), ("weight", DOUBLE), ("status", INT32)))


def _field(record: str, t: RecordType, name: str) -> Field:
    return Field(Var(record, t), name, t.field_type(name))


def _weight(attribute: str, agree: float, differ: float) -> If:
    """Add a weight to ``m`` that says whether two records agree in an attribute."""
    weight = _field("m", MATCH, "weight")
    equal = binary("==", _field("a", RECORD, attribute), _field("b", RECORD, attribute))
    return If(
        equal,
        (Assign(weight, binary("+", weight, Const(agree, DOUBLE))),),
        (Assign(weight, binary("-", weight, Const(differ, DOUBLE))),),
    )


def _wght() -> Function:
    """A match of two records; weight 0 unless they agree in name or zip (blocking)."""
    a_id, b_id = _field("a", RECORD, "id"), _field("b", RECORD, "id")
    m = Var("m", MATCH)
    same_name = binary("==", _field("a", RECORD, "name"), _field("b", RECORD, "name"))
    same_zip = binary("==", _field("a", RECORD, "zip"), _field("b", RECORD, "zip"))
    weight, status = _field("m", MATCH, "weight"), _field("m", MATCH, "status")
    blank = MakeRecord((a_id, b_id, Const(0.0, DOUBLE), Const(0, INT32)), MATCH)
    body: tuple[Stmt, ...] = (
        Declare("m", MATCH, blank),
        If(binary("==", binary("||", same_name, same_zip), Const(0, INT32)), (Return(m),)),
        _weight("name", 7.5, 3.125),
        _weight("year", 4.25, 2.625),
        _weight("zip", 5.375, 0.75),
        If(
            binary(">=", weight, Const(15.0, DOUBLE)),
            (Assign(status, Const(2, INT32)),),
            (If(binary(">=", weight, Const(5.0, DOUBLE)), (Assign(status, Const(1, INT32)),)),),
        ),
        Return(m),
    )
    return Function("wght", (("a", RECORD), ("b", RECORD)), body, MATCH)


def _max_prl() -> Function:
    """The better of two matches; ties go to the smaller id."""
    x_match, y_match = Var("x", MATCH), Var("y", MATCH)
    weights = _field("x", MATCH, "weight"), _field("y", MATCH, "weight")
    earlier = binary("<=", _field("x", MATCH, "id_old"), _field("y", MATCH, "id_old"))
    body: tuple[Stmt, ...] = (
        If(binary(">", *weights), (Return(x_match),)),
        If(binary("<", *weights), (Return(y_match),)),
        Return(Select(earlier, x_match, y_match, MATCH)),
    )
    return Function("max_PRL", (("x", MATCH), ("y", MATCH)), body, MATCH)


WGHT, MAX_PRL = _wght(), _max_prl()
F_HISTO = Select(binary("==", x(0, INT32), x(1, INT32)), Const(1, INT32), Const(0, INT32), INT32)
LOWEST = Const(-(1 << 31), INT32)
DATA_MINING = (
    program(
        "prl",
        "i:NN j:NE",
        "cc pw",
        {"N": RECORD, "E": RECORD, "M": MATCH},
        "N[i] E[j]",
        "M[i]",
        (Call("wght", (x(0, RECORD), x(1, RECORD)), MATCH),),
        combine=user_operator(MAX_PRL),
        functions=(WGHT, MAX_PRL),
    ),
    program(
        "histo",
        "e:NE b:NB",
        "pw cc",
        {"Elems": INT32, "Bins": INT32, "Out": INT32},
        "Elems[e] Bins[b]",
        "Out[b]",
        (F_HISTO,),
        combine=operator("+", INT32),
    ),
    program(
        "gen_histo",
        "e:NE b:NB",
        "pw cc",
        {"Elems": INT32, "Bins": INT32, "W": INT32, "Out": INT32},
        "Elems[e] Bins[b] W[e]",
        "Out[b]",
        (Select(binary("==", x(0, INT32), x(1, INT32)), x(2, INT32), LOWEST, INT32),),
        combine=operator("max", INT32),
    ),
)

# --------------------------------------------------------------------------- 3.6 map, reduce, scan


def _polynomial() -> tuple[Expr, ...]:
    a = x(0)
    return (
        binary("*", binary("-", binary("*", a, a), binary("*", number(3, FLOAT), a)), number(0.5, FLOAT)),
    )


MAP_REDUCE = (
    program("map", "i:N", "cc", {"I": FLOAT, "O": FLOAT}, "I[i]", "O[i]", _polynomial()),
    program("reduce", "i:N", "pw", {"I": FLOAT, "O": FLOAT}, "I[i]", "O[]", (x(0),), combine=PLUS),
    program(
        "double_reduce",
        "i:N",
        "pw",
        {"I": INT32, "O1": INT32, "O2": INT32},
        "I[i]",
        "O1[] O2[]",
        (x(0, INT32), x(0, INT32)),
        combine=tuple_operator((operator("+", INT32), operator("max", INT32))),
    ),
    program("scan", "i:N", "ps", {"I": FLOAT, "O": FLOAT}, "I[i]", "O[i]", (x(0),), combine=PLUS),
    program("mbbs", "i:N j:M", "ps pw", {"I": FLOAT, "O": FLOAT}, "I[i, j]", "O[i]", (x(0),), combine=PLUS),
)

# --------------------------------------------------------------------------- 3.7 Mandelbrot


def _mandelbrot() -> MdhProgram:
    """Escape times; the scalar function depends on the indices only and has a loop of its own."""
    zr, zi, cr, ci = (Var(n, DOUBLE) for n in ("zr", "zi", "cr", "ci"))
    n = Var("n", INT32)

    def coordinate(low: float, span: float, dim: str, size: str) -> Expr:
        scaled = binary("*", Const(span, DOUBLE), Cast(Var(dim, INT64), DOUBLE))
        return binary("+", Const(low, DOUBLE), binary("/", scaled, Cast(Var(size, INT32), DOUBLE)))

    square = binary("-", binary("*", zr, zr), binary("*", zi, zi))
    small = binary("<=", binary("+", binary("*", zr, zr), binary("*", zi, zi)), Const(4.0, DOUBLE))
    body: tuple[Stmt, ...] = (
        Declare("cr", DOUBLE, coordinate(-2.0, 3.0, "x", "W")),
        Declare("ci", DOUBLE, coordinate(-1.25, 2.5, "y", "H")),
        Declare("zr", DOUBLE, Const(0.0, DOUBLE)),
        Declare("zi", DOUBLE, Const(0.0, DOUBLE)),
        Declare("n", INT32, Const(0, INT32)),
        While(
            binary("&&", binary("<", n, Var("limit", INT32)), small),
            (
                Declare("next", DOUBLE, binary("+", square, cr)),
                Assign(zi, binary("+", binary("*", binary("*", Const(2.0, DOUBLE), zr), zi), ci)),
                Assign(zr, Var("next", DOUBLE)),
                Assign(n, binary("+", n, Const(1, INT32))),
            ),
        ),
    )
    limit = Param("limit", INT32, "limit", "int")
    return program(
        "mandelbrot", "y:H x:W", "cc cc", {"O": INT32}, "", "O[y, x]", (n,), body=body, params=(limit,)
    )


MANDELBROT = (_mandelbrot(),)

CATALOGUE: dict[str, MdhProgram] = {
    p.name: p
    for p in (
        *LINEAR_ALGEBRA,
        *CONVOLUTIONS,
        *CHEMISTRY,
        *JACOBI,
        *DATA_MINING,
        *MAP_REDUCE,
        *MANDELBROT,
    )
}

# --------------------------------------------------------------------------- beyond the catalogue

_ALPHA, _BETA = Var("alpha", FLOAT), Var("beta", FLOAT)
_BEYOND = (
    # w[i] += sum of M[i][k] * v[k]
    program(
        "matvec_accumulate",
        "i:I k:K",
        "cc pw",
        {"M": FLOAT, "v": FLOAT, "w": FLOAT},
        "M[i, k] v[k]",
        "w[i]",
        (binary("*", x(0), x(1)),),
        combine=PLUS,
        initial=(load("w[i]", FLOAT),),
    ),
    # C = alpha * A B + beta * C
    program(
        "gemm",
        "i:I j:J k:K",
        "cc cc pw",
        {"A": FLOAT, "B": FLOAT, "C": FLOAT},
        "A[i, k] B[k, j]",
        "C[i, j]",
        (binary("*", x(0), x(1)),),
        combine=PLUS,
        initial=(number(0, FLOAT),),
        values=(
            binary("+", binary("*", _ALPHA, Result(0, FLOAT)), binary("*", _BETA, load("C[i, j]", FLOAT))),
        ),
        params=(Param("alpha", FLOAT, "alpha", "float"), Param("beta", FLOAT, "beta", "float")),
    ),
    # C += (alpha * A) B: what the function computes from A alone
    program(
        "scaled_matmul",
        "i:I j:J k:K",
        "cc cc pw",
        {"A": FLOAT, "B": FLOAT, "C": FLOAT},
        "A[i, k] B[k, j]",
        "C[i, j]",
        (binary("*", binary("*", _ALPHA, x(0)), x(1)),),
        combine=PLUS,
        initial=(load("C[i, j]", FLOAT),),
        params=(Param("alpha", FLOAT, "alpha", "float"),),
    ),
    # value, payload and position of the first largest element of each row
    program(
        "argmax_payload",
        "r:R c:NC",
        "cc pw",
        {"score": FLOAT, "label": UINT8, "top": FLOAT, "who": UINT8, "where": INT64},
        "score[r, c] label[c]",
        "top[r] who[r] where[r]",
        (x(0), x(1, UINT8), Var("c", INT64)),
        combine=arg_operator("argmax", FLOAT, (UINT8,), 1),
        initial=(number(-1e30, FLOAT), Const(0, UINT8), Const(-1, INT64)),
    ),
    # a running sum per row, which continues what was there; its final value only
    program(
        "row_scan",
        "i:I j:J",
        "cc ps",
        {"A": INT32, "start": INT32, "O": INT32},
        "A[i, j]",
        "O[i, j]",
        (x(0, INT32),),
        combine=operator("+", INT32),
        initial=(load("start[i]", INT32),),
    ),
    program(
        "final_sum",
        "j:J",
        "ps",
        {"A": INT32, "s": INT32},
        "A[j]",
        "s[]",
        (x(0, INT32),),
        combine=operator("+", INT32),
        initial=(load("s[]", INT32),),
        at_last=("j",),
    ),
    # a scalar overwritten in every iteration
    program(
        "last_value",
        "i:I",
        "cc",
        {"A": INT32, "s": INT32},
        "A[i]",
        "s[]",
        (x(0, INT32),),
        at_last=("i",),
    ),
)
BEYOND: dict[str, MdhProgram] = {p.name: p for p in _BEYOND}

# --------------------------------------------------------------------------- domains, loads in the scalar function


def _with_extents(p: MdhProgram, name: str, n: int) -> MdhProgram:
    """What is loaded at indices that are data has a declared size."""
    buffers = tuple(replace(b, extents=(Affine.number(n),)) if b.name == name else b for b in p.buffers)
    return replace(p, buffers=buffers)


def _loads() -> tuple[MdhProgram, ...]:
    """Rows of a sparse matrix of fixed width; a load that only some points may do."""
    column = Binary("&", x(1, INT32), Const(3, INT32), INT32)
    gathered = binary("*", x(0), Load("x", (column,), FLOAT))
    inside = binary("&&", binary(">=", x(0, INT32), Const(0, INT32)), binary("<", x(0, INT32), Const(2, INT32)))
    guarded = Select(inside, Load("x", (x(0, INT32),), FLOAT), number(-1, FLOAT), FLOAT)
    at_once = Load("x", (Load("next", (x(0, INT32),), INT32),), FLOAT)
    return (
        _with_extents(
            program(
                "ell_spmv", "i:I k:K", "cc pw", {"v": FLOAT, "col": INT32, "x": FLOAT, "y": FLOAT},
                "v[i, k] col[i, k]", "y[i]", (gathered,), combine=PLUS, initial=(load("y[i]", FLOAT),),
            ),
            "x", 4,
        ),
        _with_extents(
            program(
                "guarded_load", "i:I", "cc", {"col": INT32, "x": FLOAT, "y": FLOAT},
                "col[i]", "y[i]", (guarded,),
            ),
            "x", 2,
        ),
        _with_extents(
            _with_extents(
                program(
                    "load_of_load", "i:I", "cc", {"col": INT32, "next": INT32, "x": FLOAT, "y": FLOAT},
                    "col[i]", "y[i]",
                    (rewrite(at_once, lambda e: _masked(e) if e.type == INT32 and not isinstance(e, Const) else None),),
                ),
                "x", 2,
            ),
            "next", 2,
        ),
    )  # fmt: skip


def _masked(e: Expr) -> Expr:
    return Binary("&", e, Const(1, INT32), INT32)


def _matrices(out: str, *inp: str) -> dict[str, Type]:
    return dict.fromkeys((*inp, out), FLOAT)


_PRODUCT = (binary("*", x(0), x(1)),)
_ZERO = (number(0, FLOAT),)
_DOMAINS = (
    # the lower triangle of C = alpha * A A^T + beta * C
    program(
        "syrk",
        "i:N j:N k:K",
        "cc cc pw",
        _matrices("C", "A"),
        "A[i, k] A[j, k]",
        "C[i, j]",
        _PRODUCT,
        combine=PLUS,
        initial=_ZERO,
        values=(
            binary("+", binary("*", _ALPHA, Result(0, FLOAT)), binary("*", _BETA, load("C[i, j]", FLOAT))),
        ),
        params=(Param("alpha", FLOAT, "alpha", "float"), Param("beta", FLOAT, "beta", "float")),
        domain="j <= i",
    ),
    # the same with unit stride, accumulating
    program(
        "syrk_t", "i:N j:N k:K", "cc cc pw", _matrices("C", "A"), "A[k, i] A[k, j]", "C[i, j]",
        _PRODUCT, combine=PLUS, initial=(load("C[i, j]", FLOAT),), domain="j <= i",
    ),
    # C = B + (strictly lower part of A)^T B
    program(
        "trmm", "i:M j:N k:M", "cc cc pw", _matrices("C", "A", "B"), "A[k, i] B[k, j]", "C[i, j]",
        _PRODUCT, combine=PLUS, initial=(load("B[i, j]", FLOAT),), domain="k > i",
    ),
    # rows of a band of parametric width, stored without gaps
    program(
        "band", "i:N k:N", "cc pw", _matrices("w", "M", "v"), "M[i, k - i + W] v[k]", "w[i]",
        _PRODUCT, combine=PLUS, initial=_ZERO, domain="k >= i - W, k <= i + W",
    ),
    program(
        "causal_filter", "i:N j:N", "cc pw", _matrices("y", "h", "x"), "h[i - j] x[j]", "y[i]",
        _PRODUCT, combine=PLUS, initial=_ZERO, domain="j <= i",
    ),
    program(
        "strict_upper", "i:N j:M", "cc cc", _matrices("O", "I"), "I[i, j]", "O[i, j]", (x(0),), domain="j > i",
    ),
    program(
        "trapezoid", "i:N j:M", "cc cc", _matrices("O", "I"), "I[i, j]", "O[i, j]", (x(0),),
        domain="j <= i*2 + 1, i + j <= N",
    ),
    # only every other column; two times the row and the column make the parameter
    program(
        "strided_line", "i:N j:M", "cc cc", _matrices("O", "I"), "I[i, j]", "O[i, j]", (x(0),),
        domain="i*2 + j == T",
    ),
    # a product of polynomials in x^2 and x: some coefficients have no terms
    program(
        "polynomials", "d:D i:N j:M", "cc pw pw", _matrices("O", "A", "B"), "A[i] B[j]", "O[d]",
        _PRODUCT, combine=PLUS, initial=_ZERO, domain="i*2 + j == d",
    ),
    program(
        "triangle3", "i:N j:N k:N", "cc cc pw", _matrices("C", "A", "B"), "A[i, k] B[j, k]", "C[i, j]",
        _PRODUCT, combine=PLUS, initial=_ZERO, domain="j <= i, k <= j",
    ),
    program(
        "tetrahedron", "i:N j:N k:N", "pw pw pw", _matrices("s", "A"), "A[i, j, k]", "s[]",
        (x(0),), combine=PLUS, initial=(load("s[]", FLOAT),), domain="j <= i, k <= j",
    ),
    # published forms: where nothing contributes, nothing is stored
    program(
        "earlier_maximum", "i:N j:N", "cc pw", _matrices("O", "I"), "I[j]", "O[i]",
        (x(0),), combine=operator("max", FLOAT), domain="j < i",
    ),
    program(
        "prl_earlier",
        "i:NN j:NN",
        "cc pw",
        {"N": RECORD, "M": MATCH},
        "N[i] N[j]",
        "M[i]",
        (Call("wght", (x(0, RECORD), x(1, RECORD)), MATCH),),
        combine=user_operator(MAX_PRL),
        functions=(WGHT, MAX_PRL),
        domain="j < i",
    ),
    program(
        "rows_of_triangle", "i:N j:N t:J", "cc cc ps", _matrices("O", "I"), "I[i, j, t]", "O[i, j, t]",
        (x(0),), combine=PLUS, domain="j <= i",
    ),
    program(
        "nothing", "i:N j:N", "cc cc", _matrices("O", "I"), "I[i, j]", "O[i, j]", (x(0),), domain="j >= i + N",
    ),
    program(
        "if_large", "i:N k:K", "cc pw", _matrices("O", "I"), "I[i, k]", "O[i]",
        (x(0),), combine=PLUS, initial=_ZERO, domain="N >= 3",
    ),
    program("point", "", "", _matrices("O", "I"), "I[]", "O[]", (binary("*", x(0), x(0)),)),
    *_loads(),
)  # fmt: skip
DOMAINS: dict[str, MdhProgram] = {p.name: p for p in _DOMAINS}
EVERYTHING = {**CATALOGUE, **BEYOND, **DOMAINS}
