"""Completion and signatures inside ``#pragma mdh``; from the text alone, whether or not it parses.

#pragma mdh combine_ops(i: cc, |        ->   cc, ++, pw(...), ps(...), and the iterators `i:`, `k:`
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from frontend_c.lexer import Token, statement_end, tokens
from lifter.annotations import BUILTIN_OPERATORS, CLAUSES, FP_POLICIES, TARGETS
from mdh_lift.lsp.positions import Text, encoded

_PRAGMA = re.compile(r"\s*#\s*pragma\s+mdh(?![\w.-])")
_OPENED = re.compile(r"([A-Za-z_]\w*)\s*$")

SIGNATURES: dict[str, tuple[str, str]] = {
    "combine_ops": (
        "combine_ops(operator, ...)",
        "One combine operator per loop, outermost first, or `iterator: operator` pairs: `cc` (or `++`),"
        " `pw(f)`, `ps(f)`.",
    ),
    "out": ("out(buffer, ...)", "The buffers that the nest writes."),
    "inp": ("inp(buffer, ...)", "The buffers that the nest reads."),
    "name": ("name(label)", "The label of the nest, instead of its ordinal in the function."),
    "sizes": ("sizes(N=1024, ...)", "A representative size to tune for; may be repeated."),
    "assume": ("assume(condition)", "A fact about parameters; it is used, and tested at run time."),
    "noalias": ("noalias(buffer, buffer, ...)", "A promise that these buffers do not overlap."),
    "fp": (
        "fp(exact | deterministic | fast)",
        "How floating-point values may be regrouped: not at all, in a fixed order, freely.",
    ),
    "target": ("target(openmp | cuda | opencl, ...)", "The targets that may be emitted for."),
}  # fmt: skip
_POLICY = {
    "exact": "never reassociates",
    "deterministic": "reassociates in a fixed order, whatever the number of threads",
    "fast": "may reassociate",
}
_KINDS = {
    "cc": "results stand side by side",
    "pw()": "results are combined point by point, by a function",
    "ps()": "prefix sums: every partial result is kept",
}


@dataclass(frozen=True, slots=True)
class Item:
    """``kind``: "clause", "operator", "value" or "name"; ``insert`` replaces the word that is begun."""

    label: str
    insert: str
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Inside:
    """Where in a directive a place is: the words before the brackets that are open there, outermost first."""

    opened: tuple[str, ...]
    argument: int  # commas before it in the innermost bracket
    word: str  # that is begun


def inside(text: Text, line: int, character: int) -> Inside | None:
    """The place in a directive of a position (in characters); None outside of directives."""
    first = line
    while first > 0 and text.line(first - 1).rstrip().endswith("\\"):
        first -= 1
    lines = [text.line(k).rstrip().removesuffix("\\") for k in range(first, line)]
    before = " ".join([*lines, text.line(line)[:character]])
    head = _PRAGMA.match(before)
    if head is None:
        return None
    rest = before[head.end() :]
    opened: list[tuple[str, int]] = []
    for k, c in enumerate(rest):
        if c in "([":
            word = _OPENED.search(rest[:k])
            opened.append((word[1] if word and c == "(" else "", 0))
        elif c in ")]" and opened:
            opened.pop()
        elif c == "," and opened:
            opened[-1] = (opened[-1][0], opened[-1][1] + 1)
    begun = re.search(r"[A-Za-z_]\w*$", rest)
    names = tuple(name for name, _ in opened)
    return Inside(names, opened[-1][1] if opened else 0, begun[0] if begun else "")


def items(text: Text, line: int, character: int) -> list[Item]:
    """What may stand at a position."""
    place = inside(text, line, character)
    if place is None:
        return []
    if not place.opened:
        return [Item(c, f"{c}(", "clause", SIGNATURES[c][0]) for c in CLAUSES]
    clause, inner = place.opened[0], place.opened[-1]
    names = names_below(text, line)
    if inner in ("pw", "ps"):
        return [Item(o, o, "operator") for o in BUILTIN_OPERATORS]
    if clause == "combine_ops":
        kinds = [Item(k, k.removesuffix(")"), "operator", v) for k, v in _KINDS.items()]
        return [*kinds, *(Item(i, f"{i}: ", "name", "loop") for i in names.iterators)]
    if clause in ("out", "inp", "noalias"):
        return [Item(a, a, "name", "array") for a in names.arrays]
    if clause == "sizes":
        return [Item(s, f"{s}=", "name", "size") for s in names.sizes]
    if clause == "assume":
        return [Item(s, s, "name", "size") for s in names.sizes]
    if clause == "fp":
        return [Item(p, p, "value", _POLICY[p]) for p in FP_POLICIES]
    return [Item(t, t, "value") for t in TARGETS] if clause == "target" else []


def signature(text: Text, line: int, character: int) -> tuple[str, str] | None:
    """Form and meaning of the clause around a position."""
    place = inside(text, line, character)
    clause = next((c for c in place.opened if c in SIGNATURES), None) if place else None
    return SIGNATURES[clause] if clause else None


@dataclass(frozen=True, slots=True)
class Names:
    iterators: tuple[str, ...]
    arrays: tuple[str, ...]
    sizes: tuple[str, ...]


def names_below(text: Text, line: int) -> Names:
    """Iterators, arrays and names in bounds of the statement behind a directive."""
    while text.line(line).rstrip().endswith("\\"):
        line += 1
    after = "\n".join(text.line(k) for k in range(line + 1, min(line + 400, text.line_count)))
    stream = [t for t in tokens(encoded(after)) if t.kind != "directive"]
    end = statement_end(stream, 0) if stream else None
    return _names(stream[: end if end is not None else 300])


def _names(stream: list[Token]) -> Names:
    iterators: dict[str, None] = {}
    arrays: dict[str, None] = {}
    bounds: dict[str, None] = {}
    for k, t in enumerate(stream[:-1]):
        name = t.text.decode("utf-8", "replace")
        if t.kind == "id" and stream[k + 1].text == b"[":
            arrays[name] = None
        if t.text == b"for":
            head = stream[k + 1 : k + 40]
            assigned = next((j for j, x in enumerate(head) if x.text == b"="), None)
            if assigned:
                iterators[head[assigned - 1].text.decode("utf-8", "replace")] = None
            parts = [j for j, x in enumerate(head) if x.text == b";"][:2]
            if len(parts) == 2:
                for x in head[parts[0] : parts[1]]:
                    if x.kind == "id":
                        bounds[x.text.decode("utf-8", "replace")] = None
    sizes = tuple(b for b in bounds if b not in iterators)
    return Names(tuple(iterators), tuple(a for a in arrays if a not in iterators), sizes)
