"""Programs as MathML: the expression of ``show.text`` as browsers set it, without a library.

    out_view⟨float⟩( w: (i) ↦ (i) ) ∘        each line is a row of an ``mtable``
    md_hom⟨i: I, k: K⟩( f, (++, pw(+)) ) ∘
    inp_view⟨float, float⟩( … )
    where f(M₀, v₀) = M₀ · v₀

Text of names is escaped here, so that the result can go into a page as it is.  ``show.text`` is its twin for
those who cannot read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from mdh_core.combine import CombineOp
from mdh_core.expr import (
    Affine,
    Binary,
    Call,
    Cast,
    Const,
    Constraint,
    Expr,
    Field,
    Load,
    MakeRecord,
    Operand,
    Result,
    Select,
    Type,
    Unary,
    Var,
    as_affine,
    named_values,
    straight_line,
)
from mdh_core.ir import Buffer, MdhProgram, Size
from mdh_core.show import c_style, expression, operand_names, relation, statements

_SIGNS = {"*": "·", "<=": "≤", ">=": "≥", "!=": "≠", "==": "=", "&&": "∧", "||": "∨", "-": "−", "%": "mod"}
_STRENGTH = {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
             "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "%": 10, "/": 11}  # fmt: skip
_ATOM = 12


def mathml(program: MdhProgram) -> str:
    """One ``math`` element, displayed as a block."""
    rows = [
        _row(_name("out_view"), _types(b.type for b in _written(program)), _outputs(program), _op("∘")),
        _row(_name("md_hom"), _sizes(program), _in("(", _id("f") + _op(",") + _operators(program), ")"),
             _op("∘")),
        _row(_name("inp_view"), _types(program.buffer(n).type for n in _read(program)), _inputs(program)),
        *_where(program),
    ]  # fmt: skip
    table = "".join(f"<mtr><mtd>{_joined(row)}</mtd></mtr>" for row in rows)
    return f'<math display="block"><mtable>{table}</mtable></math>'


# --------------------------------------------------------------------------- elements


def _id(name: str) -> str:
    return f"<mi>{escape(name)}</mi>"


def _name(name: str) -> str:
    """A name of several letters, upright in monospace."""
    return f'<mtext class="word">{escape(name)}</mtext>'


def _op(sign: str) -> str:
    return f"<mo>{escape(sign)}</mo>"


def _number(text: str) -> str:
    return f"<mn>{escape(text)}</mn>"


def _text(text: str) -> str:
    """As it is, with the spaces at its ends, which browsers would drop."""
    ends = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    before, after = ("\N{NO-BREAK SPACE}" * n for n in ends)
    return f"<mtext>{before}{escape(text.strip(' '))}{after}</mtext>"


def _row(*parts: str) -> str:
    return "".join(parts)


def _joined(row: str) -> str:
    """With neighbouring plain texts as one; names keep their own face."""
    return re.sub(r"(?:<mtext>[^<]*</mtext>){2,}", lambda m: m[0].replace("</mtext><mtext>", ""), row)


def _group(*parts: str) -> str:
    """One element, where a fraction or a sign needs one."""
    return f"<mrow>{''.join(parts)}</mrow>"


def _list(parts: Iterable[str], between: str = ",") -> str:
    return _op(between).join(parts)


def _in(left: str, inner: str, right: str) -> str:
    """In brackets of their usual size: as text, where an operator would be stretched."""
    return f"<mtext>{left}</mtext>{inner}<mtext>{right}</mtext>"


# --------------------------------------------------------------------------- views


def _read(program: MdhProgram) -> list[str]:
    return list(dict.fromkeys(a.buffer for a in program.inp.accesses))


def _written(program: MdhProgram) -> list[Buffer]:
    return [program.buffer(n) for n in dict.fromkeys(s.buffer for s in program.out.stores)]


def _types(types: Iterable[Type]) -> str:
    return _in("⟨", _list(_text(str(t)) for t in types), "⟩")


def _map(program: MdhProgram, index: Sequence[Affine]) -> str:
    point = _in("(", _list(_id(d.name) for d in program.hom.dims), ")")
    return _row(point, _op("↦"), _in("(", _list(map(_affine, index)), ")"))


def _view(program: MdhProgram, accesses: Sequence[tuple[str, Sequence[Sequence[Affine]]]]) -> str:
    parts = [
        _row(_id(name), _op(":"), _list(_map(program, index) for index in indices))
        for name, indices in accesses
    ]
    return _in("(", _list(parts), ")")


def _outputs(program: MdhProgram) -> str:
    return _view(program, [
        (b.name, [s.index for s in program.out.stores if s.buffer == b.name]) for b in _written(program)
    ])  # fmt: skip


def _inputs(program: MdhProgram) -> str:
    return _view(
        program, [(n, [a.index for a in program.inp.accesses if a.buffer == n]) for n in _read(program)]
    )


def _sizes(program: MdhProgram) -> str:
    sizes = _list(_row(_id(d.name), _op(":"), _size(d.size)) for d in program.hom.dims)
    if program.hom.domain:
        sizes += _op("|") + _list(map(_relation, program.hom.domain))
    return _in("⟨", sizes, "⟩")


def _size(size: Size) -> str:
    span = _affine(size.span)
    return (
        span if size.step == 1 else _in("⌈", f"<mfrac>{_group(span)}{_number(str(size.step))}</mfrac>", "⌉")
    )


def _relation(c: Constraint) -> str:
    return _text(relation(c))


def _operators(program: MdhProgram) -> str:
    return _in("(", _list(map(_operator, program.hom.combine)), ")")


def _operator(op: CombineOp) -> str:
    return _text("++") if op.function is None else _text(str(op))


def _affine(a: Affine) -> str:
    parts: list[str] = []
    for name, c in a.terms:
        sign = _op("−" if c < 0 else "+") if parts or c < 0 else ""
        factor = "" if abs(c) == 1 else _number(str(abs(c)))
        parts.append(sign + factor + _id(name))
    if a.const or not parts:
        parts.append((_op("−" if a.const < 0 else "+") if parts or a.const < 0 else "")
                     + _number(str(abs(a.const))))  # fmt: skip
    minus = a.terms[0][1] < 0 if a.terms else a.const < 0
    return (_group if minus else _row)(*parts)


# --------------------------------------------------------------------------- the scalar function


def _where(program: MdhProgram) -> list[str]:
    """Rows that say what ``f`` is, where results start, and what is stored of them."""
    hom = program.hom
    operands = _operands(program)
    head = _row(_text("where "), _id("f"), _in("(", _list(operands), ")"), _op("="))
    if not straight_line(hom.scalar.body):
        style = c_style(operand_names(program).__getitem__, "r{}".format)
        lines = [*statements(hom.scalar.body, style), *(expression(e, style) for e in hom.scalar.results)]
        rows = [head, *(f'<mtext class="code">{escape(_kept(line))}</mtext>' for line in lines)]
    else:
        values = [_expression(e, operands)[0] for e in hom.scalar.results]
        rows = [_row(head, values[0] if len(values) == 1 else _in("(", _list(values), ")"))]
        for name, _, value in named_values(hom.scalar.body):
            rows.append(_row(_text("with "), _id(name), _op("="), _expression(value, operands)[0]))
    several = len(hom.scalar.results) > 1
    for c, e in enumerate(program.out.initial):
        if e is not None:
            component = _component(c, several)
            rows.append(_row(component, _text(" starts with "), _expression(e, operands, several)[0]))
    for s in program.out.stores:
        if s.plain is None or s.at_last:
            place = _row(_id(s.buffer), _in("[", _list(map(_affine, s.index)), "]"))
            last = _text(f" at the last {', '.join(s.at_last)}") if s.at_last else ""
            rows.append(_row(place, _op("="), _expression(s.value, operands, several)[0], last))
    return rows


def _kept(line: str) -> str:
    """Indentation that markup would lose."""
    bare = line.lstrip(" ")
    return "\N{NO-BREAK SPACE}" * (len(line) - len(bare)) + bare


def _operands(program: MdhProgram) -> list[str]:
    buffers = [a.buffer for a in program.inp.accesses]
    return [
        f"<msub>{_id(b)}{_number(str(buffers[:k].count(b)))}</msub>" if buffers.count(b) > 1 else _id(b)
        for k, b in enumerate(buffers)
    ]


def _component(c: int, several: bool) -> str:
    return f"<msub>{_id('r')}{_number(str(c))}</msub>" if several else _id("r")


def _expression(e: Expr, operands: Sequence[str], several: bool = False) -> tuple[str, int]:
    """The markup, and how strongly its outermost operator binds."""

    def within(x: Expr, least: int) -> str:
        text, strength = _expression(x, operands, several)
        return text if strength >= least else _in("(", text, ")")

    def free(x: Expr) -> str:
        return _expression(x, operands, several)[0]

    match e:
        case Const():
            return _text(expression(e, c_style(str, str))), _ATOM
        case Var(name=name):
            return _id(name), _ATOM
        case Operand(access=k):
            return operands[k], _ATOM
        case Result(component=c):
            return _component(c, several), _ATOM
        case Load(buffer=buffer, index=index):
            places = (a for a in map(as_affine, index))
            inner = [_affine(a) if a is not None else free(i) for a, i in zip(places, index, strict=True)]
            return _row(_id(buffer), _in("[", _list(inner), "]")) if inner else _id(buffer), _ATOM
        case Binary(op="/", a=a, b=b, type=t) if t.is_float:
            return f"<mfrac>{_group(free(a))}{_group(free(b))}</mfrac>", _ATOM
        case Binary(op=op, a=a, b=b):
            own = _STRENGTH[op]
            return _row(within(a, own), _op(_SIGNS.get(op, op)), within(b, own + 1)), own
        case Unary(op=op, a=a):
            return _group(_op(_SIGNS.get(op, op)), within(a, _ATOM)), _STRENGTH["*"]
        case Select(cond=cond, then=then, other=other):
            rows = f"<mtr><mtd>{free(then)}</mtd><mtd>{_text('if ')}{free(cond)}</mtd></mtr>"
            rows += f"<mtr><mtd>{free(other)}</mtd><mtd>{_text('otherwise')}</mtd></mtr>"
            return _group("<mo>{</mo>", f"<mtable>{rows}</mtable>"), 0
        case Cast(a=a, type=t):
            return _row(_text(str(t)), _in("(", free(a), ")")), _ATOM
        case Call(function="sqrt" | "sqrtf", args=(a,)):
            return f"<msqrt>{free(a)}</msqrt>", _ATOM
        case Call(function=name, args=args):
            return _row(_text(name), _in("(", _list(map(free, args)), ")")), _ATOM
        case Field(a=a, name=name):
            return _row(within(a, _ATOM), _op("."), _text(name)), _ATOM
        case MakeRecord(values=values):
            return _in("(", _list(map(free, values)), ")"), _ATOM
    raise AssertionError(e)
