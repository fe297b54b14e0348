"""High-level programs as text for people: Unicode, the MDH project's Python spelling, LaTeX.

    out_view[float]( w: (i) ↦ (i) ) ∘
    md_hom[i: I, k: K]( f, (++, pw(+)) ) ∘
    inp_view[float, float]( M: (i, k) ↦ (i, k), v: (i, k) ↦ (k) )
    where
      f(M[0], v[0]) = M[0] * v[0]

A domain follows the sizes, ``md_hom[i: N, j: N | j ≤ i]``; the Python spelling has it in a comment.
``c_like`` prints one expression as C with the parentheses that C needs and no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from mdh_core.combine import CombineFunction, CombineOp
from mdh_core.expr import (
    COMPARISONS,
    INT32,
    LOGICAL,
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
    If,
    Load,
    MakeRecord,
    Operand,
    RecordType,
    Result,
    Return,
    Select,
    Stmt,
    Type,
    Unary,
    Var,
    While,
    as_affine,
    rewrite,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.ir import Buffer, MdhProgram, Store

Names = Callable[[int], str]

# --------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Style:
    """How a language spells what differs between C and Python."""

    select: str
    cast: str
    record: str
    call: str
    spelling: dict[str, str]  # of operators; as they are if absent
    infinity: str
    nan: str
    operand: Names
    result: Names


# Binding strength: a larger number binds tighter.  C and Python agree on the operators that both
# have, except that Python's bitwise operators bind tighter than comparisons; parentheses that
# only one of them needs are written for both.
_PRECEDENCE = {
    **dict.fromkeys(["||"], 2),
    **dict.fromkeys(["&&"], 3),
    **dict.fromkeys(["|"], 4),
    **dict.fromkeys(["^"], 5),
    **dict.fromkeys(["&"], 6),
    **dict.fromkeys(["==", "!="], 7),
    **dict.fromkeys(["<", "<=", ">", ">="], 8),
    **dict.fromkeys(["<<", ">>"], 9),
    **dict.fromkeys(["+", "-"], 10),
    **dict.fromkeys(["*", "/", "%"], 11),
}
_SELECT, _NOT, _UNARY, _POSTFIX = 1, 3, 12, 13
_LOOSE = COMPARISONS | {"&", "|", "^", "<<", ">>"}


def c_style(operand: Names, result: Names) -> Style:
    return Style(
        select="{cond} ? {then} : {other}",
        cast="({type}){a}",
        record="({type}){{{values}}}",
        call="{name}({args})",
        spelling={},
        infinity="INFINITY",
        nan="NAN",
        operand=operand,
        result=result,
    )


def python_style(operand: Names, result: Names) -> Style:
    return Style(
        select="{then} if {cond} else {other}",
        cast="{type}({a})",
        record="{type}({values})",
        call="{name}({args})",
        spelling={"&&": "and", "||": "or", "!": "not ", "int/": "//"},
        infinity="inf",
        nan="nan",
        operand=operand,
        result=result,
    )


def c_like(e: Expr, operands: Sequence[str] = (), result: str = "r{}") -> str:
    """Short C text of an expression; conversions that C does by itself are left out.

    ``operands`` are the names of ``Operand(0)``, ``Operand(1)``, ... (``operand_names``), by default ``x0``,
    ``x1``, ...; ``result`` is the pattern of the names of results.

    >>> from mdh_core.expr import FLOAT
    >>> x = Operand(0, FLOAT)
    >>> c_like(Binary("*", Binary("+", x, x, FLOAT), x, FLOAT), ["A[0]"])
    '(A[0] + A[0]) * A[0]'
    """

    def operand(k: int) -> str:
        return operands[k] if k < len(operands) else f"x{k}"

    return expression(e, c_style(operand, result.format))


def expression(e: Expr, style: Style) -> str:
    return _text(e, style)[0]


def _text(e: Expr, s: Style) -> tuple[str, int]:
    """The text of an expression, and how strongly its outermost operator binds."""
    match e:
        case Const():
            return _number(e, s)
        case Var():
            return e.name, _POSTFIX
        case Operand():
            return s.operand(e.access), _POSTFIX
        case Result():
            return s.result(e.component), _POSTFIX
        case Load():
            return e.buffer + "".join(f"[{_index(i, s)}]" for i in e.index), _POSTFIX
        case Unary():
            a = _within(e.a, _UNARY, s)
            gap = " " if a.startswith(e.op) else ""
            return s.spelling.get(e.op, e.op) + gap + a, _NOT if e.op in s.spelling else _UNARY
        case Binary():
            return _binary(e, s)
        case Select():
            parts = {"cond": e.cond, "then": e.then, "other": e.other}
            texts = {k: _within(x, _SELECT + (k == "cond"), s) for k, x in parts.items()}
            return s.select.format(**texts), _SELECT
        case Cast():
            is_call = s.cast.endswith(")")
            a = _text(e.a, s)[0] if is_call else _within(e.a, _UNARY, s)
            return s.cast.format(type=e.type, a=a), _POSTFIX if is_call else _UNARY
        case Call():
            return s.call.format(name=e.function, args=_list(e.args, s)), _POSTFIX
        case Field():
            return f"{_within(e.a, _POSTFIX, s)}.{e.name}", _POSTFIX
        case MakeRecord():
            return s.record.format(type=e.type, values=_list(e.values, s)), _POSTFIX
        case _:
            assert_never(e)


def _list(es: Iterable[Expr], s: Style) -> str:
    return ", ".join(_text(e, s)[0] for e in es)


def _index(e: Expr, s: Style) -> str:
    affine = as_affine(e)
    return _text(e, s)[0] if affine is None else str(affine)


def _within(e: Expr, least: int, s: Style) -> str:
    """The text, in parentheses if it binds less than ``least``."""
    text, strength = _text(e, s)
    return text if strength >= least else f"({text})"


def _number(e: Const, s: Style) -> tuple[str, int]:
    if not e.type.is_float:
        text = str(int(e.value))
    elif e.value in (float("inf"), float("-inf")):
        text = ("-" if e.value < 0 else "") + s.infinity
    elif e.value != e.value:
        text = s.nan
    else:
        text = repr(float(e.value))
    return text, _UNARY if text.startswith("-") else _POSTFIX


def _binary(e: Binary, s: Style) -> tuple[str, int]:
    strength = _PRECEDENCE[e.op]
    a, b = (e.a, e.b) if e.op in LOGICAL or e.op in ("<<", ">>") else _without_conversions(e)
    left = _within(a, _POSTFIX if _easily_misread(e.op, a) else strength, s)
    right = _within(b, _POSTFIX if _easily_misread(e.op, b) else strength + 1, s)
    spelled = "int/" if e.op == "/" and e.type.is_integer else e.op
    return f"{left} {s.spelling.get(spelled, e.op)} {right}", strength


def _easily_misread(op: str, e: Expr) -> bool:
    """A comparison, shift or bitwise operator inside another one: C and Python differ."""
    if not isinstance(e, Binary) or (e.op == op and op in ("&", "|", "^")):
        return False
    return op in _LOOSE and e.op in _LOOSE


def _without_conversions(e: Binary) -> tuple[Expr, Expr]:
    """The operands without the casts that C's usual arithmetic conversions amount to."""
    bare_a = e.a.a if isinstance(e.a, Cast) else e.a
    bare_b = e.b.a if isinstance(e.b, Cast) else e.b
    for a, b in ((bare_a, bare_b), (e.a, bare_b), (bare_a, e.b)):
        if usual_type(a.type, b.type) == e.a.type == e.b.type:
            return a, b
    return e.a, e.b


def usual_type(a: Type, b: Type) -> Type | None:
    """The type to which C converts the operands of an arithmetic operator (C11 6.3.1.8)."""
    if isinstance(a, RecordType) or isinstance(b, RecordType):
        return None
    if a.is_float or b.is_float:
        return max((t for t in (a, b) if t.is_float), key=lambda t: t.bits)
    a, b = (INT32 if t.bits < 32 else t for t in (a, b))
    wider = max((a, b), key=lambda t: t.bits)
    return next((t for t in (a, b) if t.bits == wider.bits and not t.is_signed), wider)


def statements(body: tuple[Stmt, ...], style: Style) -> list[str]:
    """C text of statements, one line each, nested ones indented by two spaces."""
    lines: list[str] = []
    for s in body:
        match s:
            case Declare(name=name, type=t, value=value):
                lines.append(f"{t} {name}{'' if value is None else ' = ' + expression(value, style)};")
            case Assign(target=target, value=value):
                lines.append(f"{expression(target, style)} = {expression(value, style)};")
            case If(cond=cond, then=then, other=other):
                lines += [f"if ({expression(cond, style)}) {{", *_indented(statements(then, style))]
                if other:
                    lines += ["} else {", *_indented(statements(other, style))]
                lines.append("}")
            case While(cond=cond, body=inner):
                lines += [f"while ({expression(cond, style)}) {{", *_indented(statements(inner, style)), "}"]
            case Return(value=value):
                lines.append(f"return {expression(value, style)};")
            case _:
                assert_never(s)
    return lines


def _python_statements(body: tuple[Stmt, ...], style: Style) -> list[str]:
    lines: list[str] = []
    for s in body:
        match s:
            case Declare(name=name, type=t, value=value):
                lines.append(f"{name}: {_identifier(str(t))} = " + (_none(value, style)))
            case Assign(target=target, value=value):
                lines.append(f"{expression(target, style)} = {expression(value, style)}")
            case If(cond=cond, then=then, other=other):
                lines += [f"if {expression(cond, style)}:", *_suite(then, style)]
                if other:
                    lines += ["else:", *_suite(other, style)]
            case While(cond=cond, body=inner):
                lines += [f"while {expression(cond, style)}:", *_suite(inner, style)]
            case Return(value=value):
                lines.append(f"return {expression(value, style)}")
            case _:
                assert_never(s)
    return lines


def _none(value: Expr | None, style: Style) -> str:
    return "None" if value is None else expression(value, style)


def _suite(body: tuple[Stmt, ...], style: Style) -> list[str]:
    return _indented(_python_statements(body, style) or ["pass"], 4)


def _indented(lines: Iterable[str], by: int = 2) -> list[str]:
    return [" " * by + line for line in lines]


# --------------------------------------------------------------------------- what all three show


def operand_names(program: MdhProgram) -> tuple[str, ...]:
    """Per access of the input view its name: ``A[0]``, ``A[1]`` for the accesses to buffer ``A``."""
    buffers = [a.buffer for a in program.inp.accesses]
    return tuple(f"{b}[{buffers[:k].count(b)}]" for k, b in enumerate(buffers))


def scalar_text(program: MdhProgram) -> str:
    """The scalar function on one line: ``A[0] * B[0]``; several results in parentheses."""
    operands = operand_names(program)
    style = c_style(operands.__getitem__, "r{}".format)
    results = [expression(e, style) for e in program.hom.scalar.results]
    value = results[0] if len(results) == 1 else f"({', '.join(results)})"
    lines = [line.strip() for line in statements(program.hom.scalar.body, style)]
    return value if not lines else " ".join(["{", *lines, value, "}"])


def _input_views(program: MdhProgram) -> list[tuple[Buffer, list[tuple[Affine, ...]]]]:
    """Input buffers in order of their first access, each with its index functions."""
    names = list(dict.fromkeys(a.buffer for a in program.inp.accesses))
    return [(program.buffer(n), [a.index for a in program.inp.accesses if a.buffer == n]) for n in names]


def _output_views(program: MdhProgram) -> list[tuple[Buffer, list[Store]]]:
    names = list(dict.fromkeys(s.buffer for s in program.out.stores))
    return [(program.buffer(n), [s for s in program.out.stores if s.buffer == n]) for n in names]


def _published(program: MdhProgram, store: Store) -> bool:
    """Is the store a plain component, the k-th store storing component k?"""
    return store.plain == program.out.stores.index(store) and not store.at_last


def _notes(program: MdhProgram, names: Names | None = None) -> list[tuple[str, str]]:
    """What goes beyond the published form: ``("initial", text)`` and ``("store", text)``.

    Components are called ``r``, or ``r0``, ``r1``, ..., unless ``names`` are given.
    """
    names = names or ("r" if len(program.hom.scalar.results) == 1 else "r{}").format
    style = c_style("x{}".format, names)
    notes = [
        ("initial", f"{names(c)} starts with {expression(e, style)}")
        for c, e in enumerate(program.out.initial)
        if e is not None
    ]
    for store in program.out.stores:
        if not _published(program, store):
            place = store.buffer + "".join(f"[{a}]" for a in store.index)
            last = f" at the last {', '.join(store.at_last)}" if store.at_last else ""
            notes.append(("store", f"{place} = {expression(store.value, style)}{last}"))
    return notes


def relation(c: Constraint, signs: tuple[str, str, str] = ("≤", "<", "=")) -> str:
    """A constraint without subtractions on the left: ``j ≤ i``, ``k < i + 1``, ``3 ≤ i``.

    >>> i, j = Affine.of("i"), Affine.of("j")
    >>> relation(Constraint(i - j)), relation(Constraint(i - j - 1)), relation(Constraint(i * 2 - 5, True))
    ('j ≤ i', 'j < i', '5 = 2*i')
    """
    at_most, less, equal = signs
    left = Affine(tuple((n, -k) for n, k in c.value.terms if k < 0))
    right = Affine(tuple((n, k) for n, k in c.value.terms if k > 0), c.value.const)
    if c.equality:
        sign = equal
    elif left.terms and right.const == -1 and right.terms:
        right, sign = right + 1, less
    else:
        sign = at_most
    if right.const < 0 or not left.terms:
        left, right = left - right.const, right - right.const
    return f"{left} {sign} {right}"


def _domain(program: MdhProgram) -> str:
    return ", ".join(map(relation, program.hom.domain))


def _point(program: MdhProgram) -> str:
    return ", ".join(d.name for d in program.hom.dims)


def _tuple(index: Iterable[object]) -> str:
    return "(" + ", ".join(map(str, index)) + ")"


# --------------------------------------------------------------------------- Unicode text


def text(program: MdhProgram) -> str:
    """The expression over three lines, then ``f`` and what goes beyond the published form."""
    point = f"({_point(program)}) ↦ "
    out = [
        f"{b.name}: " + ", ".join(point + _tuple(s.index) for s in stores)
        for b, stores in _output_views(program)
    ]
    inp = [
        f"{b.name}: " + ", ".join(point + _tuple(i) for i in indices) for b, indices in _input_views(program)
    ]
    sizes = ", ".join(f"{d.name}: {d.size}" for d in program.hom.dims)
    sizes += f" | {_domain(program)}" if program.hom.domain else ""
    operators = ", ".join("++" if op.kind == "cc" else str(op) for op in program.hom.combine)
    lines = [
        f"out_view[{_types(b for b, _ in _output_views(program))}]( {', '.join(out)} ) ∘",
        f"md_hom[{sizes}]( f, ({operators}) ) ∘",
        f"inp_view[{_types(b for b, _ in _input_views(program))}]( {', '.join(inp)} )",
        "where",
        *_indented(_function_text(program)),
        *_indented(f"{kind}: {note}" for kind, note in _notes(program)),
    ]
    return "\n".join(line.replace("(  )", "()") for line in lines) + "\n"


def _types(buffers: Iterable[Buffer]) -> str:
    return ", ".join(str(b.type) for b in buffers)


def _function_text(program: MdhProgram) -> list[str]:
    operands = operand_names(program)
    style = c_style(operands.__getitem__, "r{}".format)
    results = [expression(e, style) for e in program.hom.scalar.results]
    value = results[0] if len(results) == 1 else _tuple(results)
    head = f"f({', '.join([*operands, *_used_dims(program)])}) = "
    body = statements(program.hom.scalar.body, style)
    return [head + value] if not body else [head + "{", *_indented([*body, value]), "}"]


def _used_dims(program: MdhProgram) -> list[str]:
    """Dimensions whose index the scalar function uses (the published USE_MDA_INDICES)."""
    hom = program.hom
    used = {n for e in (*stmt_exprs(hom.scalar.body), *hom.scalar.results) for n in variables(e)}
    return [d.name for d in hom.dims if d.name in used]


# --------------------------------------------------------------------------- the DSL of the MDH project


_DSL_OPERATORS = {
    "+": "scalar_plus",
    "*": "scalar_times",
    "min": "scalar_min",
    "max": "scalar_max",
    "fmin": "scalar_fmin",
    "fmax": "scalar_fmax",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "&&": "logical_and",
    "||": "logical_or",
}
_DSL_TYPES = {"float": "fp32", "double": "fp64"}


def dsl(program: MdhProgram) -> str:
    """The program in the Python spelling of the MDH project (mdh.md 2.4), as valid Python."""
    point = ", ".join(d.name for d in program.hom.dims)

    def views(of: list[tuple[Buffer, list[tuple[Affine, ...]]]]) -> str:
        return ", ".join(
            f"{_identifier(b.name)} = [{', '.join(f'lambda {point}: {_tuple(i)}' for i in indices)}]"
            for b, indices in of
        )

    stores = [(b, [s.index for s in group]) for b, group in _output_views(program)]
    inputs = _input_views(program)
    sizes = ", ".join(_dsl_size(d.size.span, d.size.step) for d in program.hom.dims)
    operators = ", ".join(map(_dsl_operator, program.hom.combine))
    if len(program.hom.combine) == 1:
        operators += ","
    names = _component_names(program)
    notes = _notes(program, lambda c: f"res['{names[c]}']")
    parameters = ", ".join(f"{q.name}: {_dsl_type(q.type)}" for q in program.params)
    name = _identifier(program.name)
    lines = [
        f"def {name}({parameters}):",
        f"    @mdh( out( {_dsl_buffers([b for b, _ in stores])} ),",
        f"          inp( {_dsl_buffers([b for b, _ in inputs])} ) )",
        f"    def mdh_{name}():",
        *_indented(_dsl_function(program), 8),
        *_indented(_dsl_combine(program), 8),
        *_indented((f"# {kind}: {note}" for kind, note in notes), 8),
        *_indented((f"# domain: {_domain(program)}" for _ in program.hom.domain[:1]), 8),
        "        return (",
        f"            out_view[{_dsl_types(b for b, _ in stores)}]( {views(stores)} ),",
        f"            md_hom[{sizes or '()'}]( f, ({operators}) ),",
        f"            inp_view[{_dsl_types(b for b, _ in inputs)}]( {views(inputs)} ),",
        "        )",
        f"    return mdh_{name}",
    ]
    return "\n".join(line.replace("(  )", "()").rstrip() for line in lines) + "\n"


def _identifier(name: str) -> str:
    """A Python identifier for a name such as ``gemm.c::gemm::0`` or ``struct rec``."""
    cleaned = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return cleaned if cleaned[:1].isalpha() else f"_{cleaned}"


def _dsl_type(t: Type) -> str:
    return _identifier(_DSL_TYPES.get(str(t), str(t)))


def _dsl_types(buffers: Iterable[Buffer]) -> str:
    return ", ".join(_dsl_type(b.type) for b in buffers) or "()"


def _dsl_buffers(buffers: list[Buffer]) -> str:
    def one(b: Buffer) -> str:
        extents = "" if None in b.extents else f", [{', '.join(map(str, b.extents))}]"
        return f"{_identifier(b.name)} = Buffer[{_dsl_type(b.type)}{extents}]"

    return ", ".join(map(one, buffers))


def _dsl_size(span: Affine, step: int) -> str:
    return str(span) if step == 1 else f"-(-({span}) // {step})"


def _dsl_operator(op: CombineOp) -> str:
    return "CC" if op.function is None else f"{op.kind.upper()}({_dsl_name(op.function)})"


def _dsl_name(f: CombineFunction) -> str:
    if f.name in _DSL_OPERATORS:
        return _DSL_OPERATORS[f.name]
    return f.name if f.promised and f.name.isidentifier() else "combine"


def _dsl_function(program: MdhProgram) -> list[str]:
    buffers = [a.buffer for a in program.inp.accesses]

    def operand(k: int) -> str:
        b = buffers[k]
        number = f", {buffers[:k].count(b)}" if buffers.count(b) > 1 else ""
        return f"inp['{b}'{number}]"

    style = python_style(operand, "r{}".format)
    dims = "".join(f", {n}" for n in _used_dims(program))
    return [
        f"def f(out, inp{dims}):",
        *_indented(_python_statements(program.hom.scalar.body, style), 4),
        *(
            f"    out['{name}'] = {expression(e, style)}"
            for name, e in zip(_component_names(program), program.hom.scalar.results, strict=True)
        ),
    ]


def _component_names(program: MdhProgram) -> list[str]:
    """A component is named after the buffer that it goes to, if it alone does, else ``r<c>``."""
    names = []
    for c in range(len(program.hom.scalar.results)):
        stores = [s.buffer for s in program.out.stores if c in _components(s)]
        names.append(stores[0] if len(stores) == 1 and stores[0] not in names else f"r{c}")
    return names


def _components(store: Store) -> list[int]:
    """The components that a store uses."""
    return [e.component for e in walk(store.value) if isinstance(e, Result)]


def _dsl_combine(program: MdhProgram) -> list[str]:
    """The definition of a combine function that is not one of the named ones."""
    f = program.hom.function
    if f is None or _dsl_name(f) != "combine":
        return []
    names = _component_names(program)
    sides = {f"{side}{c}": f"{record}['{n}']" for side, record in (("l", "lhs"), ("r", "rhs"))
             for c, n in enumerate(names)}  # fmt: skip
    style = python_style(str, str)
    return [
        "def combine(res, lhs, rhs):",
        *(
            f"    res['{name}'] = {expression(_renamed(v, sides), style)}"
            for name, v in zip(names, f.values, strict=True)
        ),
    ]


def _renamed(e: Expr, names: dict[str, str]) -> Expr:
    return rewrite(e, lambda n: Var(names.get(n.name, n.name), n.type) if isinstance(n, Var) else None)


# --------------------------------------------------------------------------- LaTeX


def latex(program: MdhProgram) -> str:
    """The expression as an ``aligned`` environment (amsmath)."""
    point = rf"({_tex_names(d.name for d in program.hom.dims)}) \mapsto "

    def views(of: list[tuple[Buffer, list[tuple[Affine, ...]]]]) -> str:
        return r",\; ".join(
            _tex(b.name) + ": " + ", ".join(point + f"({_tex_names(i)})" for i in indices)
            for b, indices in of
        )

    def types(of: list[tuple[Buffer, list[tuple[Affine, ...]]]]) -> str:
        return ", ".join(rf"\mathtt{{{_escaped(str(b.type))}}}" for b, _ in of)

    stores = [(b, [s.index for s in group]) for b, group in _output_views(program)]
    inputs = _input_views(program)
    sizes = ", ".join(_tex_size(d.size.span, d.size.step) for d in program.hom.dims)
    if program.hom.domain:
        signs = (r"\le", "<", "=")
        sides = [re.split(r" (\\le|<|=) ", relation(c, signs)) for c in program.hom.domain]
        sizes += r" \mid " + ", ".join(f"{_tex(a)} {sign} {_tex(b)}" for a, sign, b in sides)
    operators = ", ".join(map(_tex_operator, program.hom.combine))
    scalar = _escaped(scalar_text(program))
    lines = [
        rf"& \mathtt{{out\_view}}\langle {types(stores)} \rangle ( {views(stores)} ) \circ {{}}",
        rf"& \mathtt{{md\_hom}}\langle {sizes} \rangle ( f, ( {operators} ) ) \circ {{}}",
        rf"& \mathtt{{inp\_view}}\langle {types(inputs)} \rangle ( {views(inputs)} )",
        rf"& \text{{where }} f = \texttt{{{scalar}}}",
        *(rf"& \text{{{kind}: \texttt{{{_escaped(note)}}}}}" for kind, note in _notes(program)),
    ]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}\n"


def _tex_operator(op: CombineOp) -> str:
    if op.function is None:
        return r"\mathbin{+\!\!+}"
    return rf"\mathtt{{{op.kind}}}({_tex_function(op.function)})"


def _tex_function(f: CombineFunction) -> str:
    return f.name if f.name in ("+", "*") else rf"\mathtt{{{_escaped(f.name)}}}"


def _tex_size(span: Affine, step: int) -> str:
    return _tex(str(span)) if step == 1 else rf"\lceil ({_tex(str(span))}) / {step} \rceil"


def _tex(name: str) -> str:
    """A name of several letters upright, an affine text as it is."""
    simple = name.replace("_", "").isalnum() and len(name) > 1 and not name.isdigit()
    return rf"\mathit{{{_escaped(name)}}}" if simple else _escaped(name).replace("*", r" \cdot ")


def _tex_names(items: Iterable[object]) -> str:
    return ", ".join(_tex(str(i)) for i in items)


_TEX = {c: "\\" + c for c in "#$%&_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def _escaped(s: str) -> str:
    return "".join(_TEX.get(c, c) for c in s)


def show(program: MdhProgram, as_: str = "text") -> str:
    """The program as ``text``, ``dsl`` or ``latex``."""
    return {"text": text, "dsl": dsl, "latex": latex}[as_](program)
