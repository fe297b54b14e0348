"""``#pragma mdh data copyin(A) copyout(C) create(T)`` before a compound statement: a data region.

    tokens, declarations -> DataRegion(arrays with their clauses, the statement's bytes, uses by the host)

While a GPU runs the nests of the region, its arrays are on the device.  So nothing between the nests may use
their elements, and the region is left at its end only.  Which nests a GPU runs is not known here:
``problems`` tells, for the nests that it does run, what the host must not do.  Other targets ignore the
directive.

Pointers to the arrays may be copied and exchanged: what is assigned from one counts as an array of the
directive from then on.  What is reached through pointers made elsewhere is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from frontend_c.c_types import Array, CType, Pointer, Types
from frontend_c.directives import DATA
from frontend_c.expressions import Context
from frontend_c.functions import parameters
from frontend_c.math_functions import MATH
from frontend_c.parsing import Node, c_ast, first_token, walk_nodes
from frontend_c.positions import Positions, PreToken
from frontend_c.scopes import local_types, surroundings
from mdh_core.diagnostics import Diagnostic, refuse, replacement
from mdh_core.source import NO_SPAN, Span

CLAUSES = ("copyin", "copyout", "copy", "create")
_CLAUSE = re.compile(r"[\s,]*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?")
_THREADS = re.compile(r"omp\s+(parallel|task|target|teams)\b|acc\b")
_NAME = re.compile(r"[A-Za-z_]\w*$")


@dataclass(frozen=True, slots=True)
class RegionName:
    """An array of a directive: its name, its clause, and where it is named."""

    name: str
    clause: str
    span: Span


@dataclass(frozen=True, slots=True)
class HostUse:
    """Something between the nests that must not be there; not a use if ``at`` lies in a nest on the GPU."""

    at: int
    diagnostic: Diagnostic


@dataclass(frozen=True, slots=True)
class DataRegion:
    """A directive with its compound statement; spans are in the file.

    name      path.c::function::data0
    names     arrays and pointers in the order of the directive
    span      from the brace that opens the statement to the one that closes it
    uses      what the host does in the statement with the arrays, in nests as well
    """

    name: str
    function: str
    label: str
    names: tuple[RegionName, ...]
    span: Span
    directive_span: Span
    uses: tuple[HostUse, ...] = ()


@dataclass(frozen=True, slots=True)
class NestOnDevice:
    """A nest that a GPU runs: its bytes, and the names of the arrays that it writes."""

    span: Span
    written: frozenset[str]


def problems(region: DataRegion, nests: Sequence[NestOnDevice]) -> tuple[Diagnostic, ...]:
    """Why the arrays cannot stay on the device (MDH419), where a GPU runs these nests of the file."""
    inside = [n for n in nests if region.span.start <= n.span.start < region.span.end]
    found = [
        u.diagnostic for u in region.uses if not any(n.span.start <= u.at < n.span.end for n in inside)
    ]
    written = {name for n in inside for name in n.written}
    for a in region.names:
        if a.clause == "copyin" and a.name in written:
            found.append(
                Diagnostic(
                    "MDH419", f"`{a.name}` is written in the region and not copied out", span=a.span,
                    help=f"`copy({a.name})` copies it back, `create({a.name})` says that it is not needed",
                )
            )  # fmt: skip
    return tuple(dict.fromkeys(found))


def insertions(region: DataRegion, begin: str, end: str) -> tuple[tuple[int, str], tuple[int, str]]:
    """Where the calls at a region's begin and end go, as offsets in the file, and their text.

    Both stand inside of the braces, so that the statement may be the body of a loop or an ``if``.
    """
    return (region.span.start + 1, f" {begin}"), (region.span.end - 1, f"{end} ")


# --------------------------------------------------------------------------- the directive


def parse_data(
    text: str, offsets: Sequence[int], span: Span
) -> tuple[tuple[RegionName, ...], tuple[Diagnostic, ...]]:
    """The arrays that ``text`` (what follows ``mdh``) names, and everything wrong with it.

    ``offsets[k]`` is the byte offset of ``text[k]`` in the file, ``offsets[len(text)]`` that of its end.
    """
    head = DATA.match(text)
    assert head is not None
    names: list[RegionName] = []
    wrong: list[Diagnostic] = []

    def at(start: int, end: int) -> Span:
        return Span(offsets[start], max(offsets[start], offsets[end - 1] + 1)) if end > start else span

    position = head.end()
    while text[position:].strip(" \t\r\n\f\v,"):
        clause = _CLAUSE.match(text, position)
        if clause is None:
            rest = text[position:].strip()
            wrong.append(Diagnostic("MDH402", f"`{rest}` is no clause", span=span, help="copy(A)"))
            break
        position = clause.end()
        word, here = clause[1], at(*clause.span(1))
        if word not in CLAUSES:
            advice = f"the clauses of `data` are {', '.join(CLAUSES)}"
            close = get_close_matches(word, CLAUSES, 1, 0.5)
            fix = replacement(f"write `{close[0]}`", here, close[0]) if close else None
            wrong.append(Diagnostic("MDH401", f"unknown clause `{word}`", span=here, help=advice, fix=fix))
            continue
        if clause[2] is None or not clause[2].strip():
            wrong.append(
                Diagnostic("MDH402", f"clause `{word}` needs names", span=here, help=f"{word}(A, B)")
            )
            continue
        start = clause.start(2)
        for part in clause[2].split(","):
            name, begin = part.strip(), start + len(part) - len(part.lstrip())
            place = at(begin, begin + len(name))
            start += len(part) + 1
            if not _NAME.match(name):
                what = f"`{name}` is no name of an array"
                wrong.append(Diagnostic("MDH402", what, span=place, help=f"{word}(A, B)"))
            elif any(name == n.name for n in names):
                wrong.append(Diagnostic("MDH402", f"`{name}` is named twice", span=place))
            else:
                names.append(RegionName(name, word, place))
    if not names and not wrong:
        wrong.append(Diagnostic("MDH402", "`data` needs a clause", span=span, help="data copy(A)"))
    return tuple(names), tuple(wrong)


def region_in(
    block: Node, definition: Node, draft: DataRegion, context: Context
) -> tuple[DataRegion, tuple[Diagnostic, ...]]:
    """The region with the uses in its statement, and what is wrong with its names.

    Raises ``Refusal`` (MDH419) where the statement can be left.
    """
    check_exits(block, definition, context.positions)
    around = surroundings(definition, parameters(definition), block)
    assert around is not None
    unit = context.unit
    types = Types(unit, context.types.signed_char, local_types(around.scopes))
    names = [n.name for n in draft.names]
    declared = {n: around.variables.get(n) for n in names}
    nodes = {n: unit.variable(n) if v is None else v.decl for n, v in declared.items()}
    found = {n: None if d is None else types.resolve(d.type) for n, d in nodes.items()}
    wrong = check_types(draft.names, found)
    shared = any(v is None or v.storage == "global" for v in declared.values())
    return replace(draft, uses=host_uses(block, names, shared, context.positions)), wrong


def check_types(names: Sequence[RegionName], types: Mapping[str, CType | None]) -> tuple[Diagnostic, ...]:
    """MDH418 for what is no array or pointer that is visible at the statement."""
    found = []
    for n in names:
        t = types.get(n.name)
        if not isinstance(t, Array | Pointer):
            what = "is not declared here" if t is None else "is neither an array nor a pointer"
            found.append(Diagnostic("MDH418", f"`{n.name}` {what}", span=n.span))
    return tuple(found)


# --------------------------------------------------------------------------- the statement


def check_exits(region: Node, function: Node, positions: Positions) -> None:
    """Raises ``Refusal`` (MDH419) where the statement can be left, or entered, other than by its braces."""
    labels = {n.name for n in walk_nodes(region) if isinstance(n, c_ast.Label)}
    inside = [n for n in walk_nodes(region) if isinstance(n, c_ast.Goto)]
    every = [n for n in walk_nodes(function) if isinstance(n, c_ast.Goto)]
    every_return = [n for n in walk_nodes(region) if isinstance(n, c_ast.Return)]
    mine = set(map(id, inside))
    into = [n for n in every if n.name in labels and id(n) not in mine]
    found = [(n, "`goto` into the data region") for n in into]
    found += [(n, "`goto` out of the data region") for n in inside if n.name not in labels]
    found += [(n, "`return` out of the data region") for n in every_return]
    found += list(_loose(region, False, False))
    for node, message in found:
        at = first_token(node)
        span = NO_SPAN if at is None else positions.span(at, at)
        advice = "arrays are copied back at the end of the statement: leave it there"
        raise refuse("MDH419", message, span, help=advice)


def _loose(node: Node, in_loop: bool, in_switch: bool) -> Iterator[tuple[Node, str]]:
    """Jumps and labels of a loop or a switch around the statement."""
    if isinstance(node, c_ast.Break) and not (in_loop or in_switch):
        yield node, "`break` out of the data region"
    if isinstance(node, c_ast.Continue) and not in_loop:
        yield node, "`continue` out of the data region"
    if isinstance(node, c_ast.Case | c_ast.Default) and not in_switch:
        yield node, "`case` inside of the data region"
    loop = in_loop or isinstance(node, c_ast.For | c_ast.While | c_ast.DoWhile)
    switch = in_switch or isinstance(node, c_ast.Switch)
    for _, child in node.children():
        if child is not None:
            yield from _loose(child, loop, switch)


def host_uses(
    region: Node, names: Collection[str], shared: bool, positions: Positions
) -> tuple[HostUse, ...]:
    """What the statement does with arrays beyond copying pointers to them, wherever it stands in it.

    shared   functions that are called may reach an array without being given it
    """
    known = set(names)
    while more := {name for name, _ in _copies(region, known)} - known:
        known |= more
    passed: set[int] = set()  # names that are only copied
    for _, value in _copies(region, known):
        passed |= {id(n) for n in walk_nodes(value) if isinstance(n, c_ast.ID) and n.name in known}
    for node in walk_nodes(region):
        if isinstance(node, c_ast.Assignment) and isinstance(node.lvalue, c_ast.ID) and node.op == "=":
            passed.add(id(node.lvalue))
        if isinstance(node, c_ast.StructRef):
            passed.add(id(node.field))
        if isinstance(node, c_ast.UnaryOp) and node.op == "sizeof":
            passed |= {id(n) for n in walk_nodes(node)}
    found = []
    advice = "take it out of the region, or put a directive before a loop that does it"

    def note(node: Node, message: str) -> None:
        at = first_token(node)
        span = NO_SPAN if at is None else positions.span(at, at)
        found.append(HostUse(span.start, Diagnostic("MDH419", message, span=span, help=advice)))

    for node in walk_nodes(region):
        if isinstance(node, c_ast.ID) and node.name in known and id(node) not in passed:
            note(node, f"`{node.name}` is used by the host while it is on the device")
        if shared and isinstance(node, c_ast.FuncCall):
            called = node.name.name if isinstance(node.name, c_ast.ID) else "a function"
            if called not in MATH:
                note(node, f"`{called}` may use an array that is on the device")
    return tuple(found)


def thread_uses(
    stream: Sequence[PreToken], first: int, end: int, positions: Positions
) -> tuple[HostUse, ...]:
    """Directives that start threads between the tokens: each thread has other memory on the device."""
    found = []
    for k in range(first, end):
        if stream[k].kind == "pragma" and _THREADS.match(stream[k].text):
            following = next((j for j in range(k, end) if stream[j].kind != "pragma"), k)
            at = positions.span(following, following)
            message = "threads of the host in a data region have no part in what is on the device"
            span = positions.source.line_span(stream[k].line)
            found.append(HostUse(at.start, Diagnostic("MDH419", message, span=span)))
    return tuple(found)


def _copies(region: Node, known: set[str]) -> Iterator[tuple[str, Node]]:
    """Pointers that are set to an address in a known array, and this address."""
    for node in walk_nodes(region):
        match node:
            case c_ast.Decl(init=value) if value is not None and _is_address(value, known):
                yield node.name, value
            case c_ast.Assignment(op="=", lvalue=c_ast.ID(name=name)) if _is_address(node.rvalue, known):
                yield name, node.rvalue


def _is_address(node: Node, known: set[str]) -> bool:
    """An address in a known array, of which no element is read to compute it."""
    match node:
        case c_ast.ID():
            return node.name in known
        case c_ast.Cast():
            return _is_address(node.expr, known)
        case c_ast.BinaryOp(op="+" | "-"):
            sides = [_is_address(n, known) for n in (node.left, node.right)]
            other = node.right if sides[0] else node.left
            return sides[0] != sides[1] and not _mentions(other, known)
        case c_ast.UnaryOp(op="&", expr=c_ast.ArrayRef()):
            inner = node.expr
            while isinstance(inner, c_ast.ArrayRef):
                if _mentions(inner.subscript, known):
                    return False
                inner = inner.name
            return isinstance(inner, c_ast.ID) and inner.name in known
    return False


def _mentions(node: Node, known: set[str]) -> bool:
    return any(isinstance(n, c_ast.ID) and n.name in known for n in walk_nodes(node))


