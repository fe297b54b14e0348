"""The grammar of the directive's clauses, shared by the C pragma and the Python decorator.

directive ::= "mdh" clause* | "mdh" "(" access ":" operator ("," operator)* ")"
clause    ::= combine_ops(op, ...) | combine_ops(it: op, ...) | out(name, ...) | inp(name, ...)
            | name(label) | sizes(N=1, ...) | assume(condition) | noalias(a, b, ...)
            | fp(exact|deterministic|fast) | target(openmp|cuda|opencl, ...)
op        ::= cc | ++ | pw(f) | ps(f) | f            (a bare f is pw(f))
f         ::= + | * | min | max | & | ^ | "|" | && | || | argmin | argmax | C identifier | (f, f, ...)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from mdh_core.diagnostics import Diagnostic, Refusal, refuse, replacement
from mdh_core.source import NO_SPAN, Span

BUILTIN_OPERATORS = ("+", "*", "min", "max", "&", "^", "|", "&&", "||", "argmin", "argmax")
FP_POLICIES = ("exact", "deterministic", "fast")
TARGETS = ("openmp", "cuda", "opencl")
CLAUSES = ("combine_ops", "out", "inp", "name", "sizes", "assume", "noalias", "fp", "target")
REPEATABLE = ("sizes", "assume", "noalias")


@dataclass(frozen=True, slots=True)
class OpClause:
    """One declared operator: kind "cc" | "pw" | "ps", the function names (several for a tuple)."""

    kind: str
    functions: tuple[str, ...] = ()
    iterator: str = ""  # empty: by position
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    def __str__(self) -> str:
        inner = ", ".join(self.functions)
        return self.kind if self.kind == "cc" else f"{self.kind}({inner})"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a directive of OpenMP or OpenACC says about the loop that follows it.

    ``at``: offset of that loop's key word; ``loops``: how many perfectly nested loops it is about.
    ``parallel``: their iterations may run in any order and at the same time.
    """

    language: str  # "omp" | "acc"
    at: int
    loops: int = 1
    parallel: bool = True
    reductions: tuple[tuple[str, str, Span], ...] = ()  # operator, variable, place
    private: tuple[str, ...] = ()  # variables of which each iteration or thread has its own
    span: Span = field(default=NO_SPAN, compare=False, repr=False)
    own: tuple[str, ...] = ()  # those of which the threads that share the loop may have their own anyway


@dataclass(frozen=True, slots=True)
class Directive:
    """What a directive states; absent clauses are empty.  All spans are in the original file."""

    combine_ops: tuple[OpClause, ...] = ()
    out: tuple[str, ...] = ()
    inp: tuple[str, ...] = ()
    label: str = ""
    sizes: tuple[tuple[tuple[str, int], ...], ...] = ()
    assume: tuple[str, ...] = ()  # C conditions
    noalias: tuple[tuple[str, ...], ...] = ()
    fp: str = "fast"
    targets: tuple[str, ...] = ()
    access: str = ""  # output access of the CC'23 spelling, as written
    claims: tuple[Claim, ...] = ()  # of directives of other languages in the nest
    clause_spans: tuple[tuple[str, Span], ...] = field(default=(), compare=False, repr=False)

    def clause_span(self, name: str) -> Span:
        return dict(self.clause_spans).get(name, NO_SPAN)

    def name_span(self, clause: str, name: str) -> Span:
        """Of a name that a clause mentions."""
        return self.clause_span(f"{clause}: {name}")


# --------------------------------------------------------------------------- reading


def parse_directive(
    text: str, offsets: Sequence[int] | None = None
) -> tuple[Directive, tuple[Diagnostic, ...]]:
    """The directive that ``text`` (what follows ``mdh``) states, and everything wrong with it.

    ``offsets[k]`` is the byte offset of ``text[k]`` in the file, ``offsets[len(text)]`` that of its
    end; without them diagnostics have no spans.

    >>> parse_directive("combine_ops(cc, pw(+)) name(gemv)")[0].label
    'gemv'
    >>> [str(op) for op in parse_directive("( w[i] : ++ , + )")[0].combine_ops]
    ['cc', 'pw(+)']
    """
    reader = _Reader(text, offsets)
    if text.lstrip().startswith("("):
        return reader.read_access_form()
    return reader.read_clauses()


_CLAUSE = re.compile(r"[A-Za-z_]\w*")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*$")
_LABEL = re.compile(r"[A-Za-z_][\w.-]*$")
_SIZE = re.compile(r"([A-Za-z_]\w*)\s*=\s*(0[xX][0-9a-fA-F]+|[0-9]+)[uUlL]*$")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the directive: its text without surrounding blanks, and where it starts."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def _trimmed(text: str, start: int) -> _Part:
    return _Part(text.strip(), start + len(text) - len(text.lstrip()))


def _split(part: _Part, separator: str = ",") -> list[_Part]:
    """The pieces between separators that are outside brackets; none for an empty text."""
    if not part.text:
        return []
    pieces, depth, begin = [], 0, 0
    for k, char in enumerate(part.text):
        depth += (char in "([{") - (char in ")]}")
        if char == separator and depth == 0:
            pieces.append(_trimmed(part.text[begin:k], part.start + begin))
            begin = k + 1
    return [*pieces, _trimmed(part.text[begin:], part.start + begin)]


class _Reader:
    """Reads clauses one by one; a wrong one is noted and the next is read."""

    def __init__(self, text: str, offsets: Sequence[int] | None) -> None:
        self.text = text
        self.offsets = offsets
        self.problems: list[Diagnostic] = []
        self.values: dict[str, object] = {}
        self.spans: list[tuple[str, Span]] = []

    def span(self, start: int, end: int) -> Span:
        if self.offsets is None:
            return NO_SPAN
        if self.offsets[0] == self.offsets[-1]:  # a macro wrote it: a place, but no bytes
            return Span(self.offsets[0], self.offsets[0])
        last = self.offsets[max(start, end - 1)] + 1 if end > start else self.offsets[start]
        return Span(self.offsets[start], max(last, self.offsets[start]))

    def malformed(self, message: str, part: _Part, advice: str = "") -> Refusal:
        return refuse("MDH402", message, self.span(part.start, part.end), help=advice)

    # ------------------------------------------------------------------ the two forms

    def read_clauses(self) -> tuple[Directive, tuple[Diagnostic, ...]]:
        for name, argument in self._clauses():
            try:
                self._clause(name, argument)
            except Refusal as refusal:
                self.problems.append(refusal.diagnostic)
        return self._directive(), tuple(self.problems)

    def read_access_form(self) -> tuple[Directive, tuple[Diagnostic, ...]]:
        """``( C[i][j] : ++ , ++ , + )``."""
        try:
            start = self.text.index("(")
            end = self._closing(start)
            rest = _trimmed(self.text[end:], end)
            if rest.text:
                raise self.malformed(f"`{rest.text}` after the directive", rest)
            inner = _Part(self.text[start + 1 : end - 1], start + 1)
            access, *more = _split(inner, ":")
            whole = _trimmed(inner.text, inner.start)
            if len(more) != 1 or not access.text:
                raise self.malformed(
                    "expected `output access : operator, ...`", whole, "mdh( C[i][j] : ++, ++, + )"
                )
            self.values["access"] = access.text
            self.values["combine_ops"] = tuple(self._operator(p) for p in self._items(more[0], whole))
            self.spans.append(("combine_ops", self.span(more[0].start, more[0].end)))
        except Refusal as refusal:
            self.problems.append(refusal.diagnostic)
        return self._directive(), tuple(self.problems)

    def _directive(self) -> Directive:
        return Directive(**self.values, clause_spans=tuple(self.spans))  # type: ignore[arg-type]

    def _clauses(self) -> Iterator[tuple[_Part, _Part | None]]:
        """Names and arguments; commas between clauses are allowed, as in OpenMP."""
        position = 0
        while position < len(self.text):
            if self.text[position] in " \t\r\n\f\v,":
                position += 1
                continue
            found = _CLAUSE.match(self.text, position)
            if found is None:
                self._note_rest(position)
                return
            name = _Part(found.group(), position)
            position = found.end()
            bracket = len(self.text) - len(self.text[position:].lstrip())
            if bracket >= len(self.text) or self.text[bracket] != "(":
                yield name, None
                continue
            try:
                position = self._closing(bracket)
            except Refusal as refusal:
                self.problems.append(refusal.diagnostic)
                return
            yield name, _Part(self.text[bracket + 1 : position - 1], bracket + 1)

    def _note_rest(self, position: int) -> None:
        rest = _trimmed(self.text[position:], position)
        self.problems.append(self.malformed(f"`{rest.text}` is no clause", rest).diagnostic)

    def _closing(self, start: int) -> int:
        """Position after the bracket that closes the one at ``start``."""
        expected: list[str] = []
        for k in range(start, len(self.text)):
            char = self.text[k]
            if char in _CLOSING:
                expected.append(_CLOSING[char])
            elif char in ")]}":
                if not expected or expected.pop() != char:
                    raise self.malformed(f"`{char}` has no partner", _Part(char, k))
                if not expected:
                    return k + 1
        raise self.malformed(f"`{self.text[start]}` is not closed", _Part(self.text[start], start))

    # ------------------------------------------------------------------ clauses

    def _clause(self, name: _Part, argument: _Part | None) -> None:
        if name.text not in CLAUSES:
            close = get_close_matches(name.text, [*CLAUSES, "target"], 1, 0.5)
            raise refuse(
                "MDH401", f"unknown clause `{name.text}`", self.span(name.start, name.end),
                help=f"did you mean `{close[0]}`?" if close else f"the clauses are {', '.join(CLAUSES)}",
                fix=replacement(f"write `{close[0]}`", self.span(name.start, name.end), close[0])
                if close else None,
            )  # fmt: skip
        if argument is None:
            raise self.malformed(f"clause `{name.text}` needs an argument", name, f"{name.text}(...)")
        span = self.span(name.start, argument.end + 1)
        if name.text in dict(self.spans) and name.text not in REPEATABLE:
            raise refuse("MDH407", f"clause `{name.text}` is given twice", self.span(name.start, name.end))
        self.spans.append((name.text, span))
        whole = _Part(self.text[name.start : argument.end + 1], name.start)
        _HANDLERS[name.text](self, _trimmed(argument.text, argument.start), whole)

    def _items(self, argument: _Part, whole: _Part) -> list[_Part]:
        """The list in a clause: not empty, no empty item."""
        items = _split(argument)
        if not items:
            raise self.malformed("the list is empty", whole)
        for item in items:
            if not item.text:
                raise self.malformed("an item of the list is missing", whole)
        return items

    def _names(self, argument: _Part, whole: _Part) -> tuple[str, ...]:
        names: list[str] = []
        for item in self._items(argument, whole):
            if not _IDENTIFIER.match(item.text):
                raise self.malformed(f"`{item.text}` is no name", item)
            if item.text in names:
                raise self.malformed(f"`{item.text}` is named twice", item)
            names.append(item.text)
            self._note_name(whole, item)
        return tuple(names)

    def _note_name(self, whole: _Part, name: _Part) -> None:
        clause = whole.text.partition("(")[0].strip()
        self.spans.append((f"{clause}: {name.text}", self.span(name.start, name.end)))

    def combine_ops(self, argument: _Part, whole: _Part) -> None:
        ops: list[OpClause] = []
        for item in self._items(argument, whole):
            pieces = _split(item, ":")
            if len(pieces) > 2 or (len(pieces) == 2 and not _IDENTIFIER.match(pieces[0].text)):
                raise self.malformed("expected `iterator: operator`", item)
            iterator = pieces[0].text if len(pieces) == 2 else ""
            if ops and bool(iterator) != bool(ops[0].iterator):
                raise self.malformed(
                    "operators are given by position and by iterator", item, "use one of the two"
                )
            if iterator and iterator in {op.iterator for op in ops}:
                raise self.malformed(f"iterator `{iterator}` has two operators", item)
            if iterator:
                self._note_name(whole, pieces[0])
            ops.append(self._operator(pieces[-1], iterator))
        self.values["combine_ops"] = tuple(ops)

    def _operator(self, part: _Part, iterator: str = "") -> OpClause:
        span = self.span(part.start, part.end)
        if part.text in ("cc", "++"):
            return OpClause("cc", (), iterator, span)
        found = re.match(r"(pw|ps)\s*\(", part.text)
        if found is None:
            return OpClause("pw", self._functions(part), iterator, span)
        if not part.text.endswith(")"):
            raise self.malformed(f"`{part.text}` is no combine operator", part)
        inner = _trimmed(part.text[found.end() : -1], part.start + found.end())
        return OpClause(found[1], self._functions(inner), iterator, span)

    def _functions(self, part: _Part) -> tuple[str, ...]:
        """``f`` or the tuple ``(f, f, ...)``; its brackets may be left out inside ``pw( )``."""
        if part.text.startswith("(") and part.text.endswith(")"):
            part = _trimmed(part.text[1:-1], part.start + 1)
        functions = self._items(part, part)
        for f in functions:
            if f.text not in BUILTIN_OPERATORS and not _IDENTIFIER.match(f.text):
                choices = " ".join(BUILTIN_OPERATORS)
                advice = f"use cc, pw(f) or ps(f), where f is one of {choices} or a function's name"
                raise self.malformed(f"`{f.text}` is no combine operator", f, advice)
            if f.text in ("cc", "pw", "ps"):
                raise self.malformed(f"`{f.text}` is not the name of a function", f)
        return tuple(f.text for f in functions)

    def out(self, argument: _Part, whole: _Part) -> None:
        self.values["out"] = self._names(argument, whole)

    def inp(self, argument: _Part, whole: _Part) -> None:
        self.values["inp"] = self._names(argument, whole)

    def name(self, argument: _Part, whole: _Part) -> None:
        if not _LABEL.match(argument.text):
            raise self.malformed(f"`{argument.text}` is no label", argument if argument.text else whole)
        self.values["label"] = argument.text

    def sizes(self, argument: _Part, whole: _Part) -> None:
        pairs: dict[str, int] = {}
        for item in self._items(argument, whole):
            found = _SIZE.match(item.text)
            if found is None:
                raise self.malformed(f"`{item.text}` is not of the form `N=1024`", item)
            if found[1] in pairs:
                raise self.malformed(f"`{found[1]}` has two sizes", item)
            self._note_name(whole, _Part(found[1], item.start))
            pairs[found[1]] = int(found[2], 16 if found[2][:2] in ("0x", "0X") else 10)
        self._append("sizes", tuple(pairs.items()))

    def assume(self, argument: _Part, whole: _Part) -> None:
        if not argument.text:
            raise self.malformed("the condition is missing", whole, "assume(n > 0)")
        for condition in self._items(argument, whole):  # several hold together
            if re.search(r"(?<![=!<>])=(?!=)|\+\+|--|;", condition.text):
                raise self.malformed("the condition has an effect", condition, "use `==` to compare")
            self._append("assume", condition.text)

    def noalias(self, argument: _Part, whole: _Part) -> None:
        names = self._names(argument, whole)
        if len(names) < 2:
            raise self.malformed("`noalias` needs two buffers or more", whole)
        self._append("noalias", names)

    def fp(self, argument: _Part, whole: _Part) -> None:
        self.values["fp"] = self._one_of(argument, whole, FP_POLICIES)

    def target(self, argument: _Part, whole: _Part) -> None:
        items = self._items(argument, whole)
        self.values["targets"] = tuple(self._one_of(item, whole, TARGETS) for item in items)

    def _one_of(self, part: _Part, whole: _Part, choices: Sequence[str]) -> str:
        if part.text not in choices:
            close = get_close_matches(part.text, choices, 1, 0.5)
            advice = f"did you mean `{close[0]}`?" if close else f"use {', '.join(choices)}"
            raise self.malformed(f"`{part.text}` is not known here", part if part.text else whole, advice)
        return part.text

    def _append(self, field_name: str, value: object) -> None:
        old = self.values.get(field_name, ())
        assert isinstance(old, tuple)
        self.values[field_name] = (*old, value)


_HANDLERS: dict[str, Callable[[_Reader, _Part, _Part], None]] = {
    "combine_ops": _Reader.combine_ops, "out": _Reader.out, "inp": _Reader.inp, "name": _Reader.name,
    "sizes": _Reader.sizes, "assume": _Reader.assume, "noalias": _Reader.noalias, "fp": _Reader.fp,
    "target": _Reader.target,
}  # fmt: skip


# --------------------------------------------------------------------------- OpenMP and OpenACC

_PRIVATE = ("private", "firstprivate", "lastprivate", "linear", "copyprivate")
_REDUCTIONS = {
    "+": "+", "-": "+", "*": "*", "&": "&", "|": "|", "^": "^", "&&": "&&", "||": "||", "min": "min",
    "max": "max", "and": "&&", "or": "||",
}  # fmt: skip
_WORD = re.compile(r"\s*([A-Za-z_]\w*)")


def parse_claim(
    language: str, text: str, offsets: Sequence[int] | None, at: int
) -> tuple[Claim | None, str, tuple[Diagnostic, ...]]:
    """What ``text`` (after ``omp`` or ``acc``) claims, and why it is no directive of ours, if it is none.

    The reason is "" for a directive about a loop, "other" for one that has nothing to do with loops, and
    "inside" for one that shares out a loop among threads that run already.

    >>> parse_claim("omp", " parallel for reduction(+: s) collapse(2)", None, 0)[0].loops
    2
    """
    reader = _Reader(text, offsets)
    words: list[str] = []
    position = 0
    while (found := _WORD.match(text, position)) and not text[found.end() :].lstrip().startswith("("):
        words.append(found[1])
        position = found.end()
    kind = kind_of_directive(language, words)
    if kind == "other":
        return None, kind, ()
    loops, private = 1, list[str]()
    reductions: list[tuple[str, str, Span]] = []
    reader.text = " " * position + text[position:]
    for name, argument in reader._clauses():
        try:
            if argument is None:
                words.append(name.text)
            elif name.text == "collapse":
                loops = _count(reader, argument)
            elif name.text in _PRIVATE:
                private += [p.text for p in _split(_Part(argument.text.partition(":")[0], argument.start))]
            elif name.text in ("reduction", "in_reduction"):
                reductions += _reductions(reader, argument)
        except Refusal as refusal:
            reader.problems.append(refusal.diagnostic)
    sequential = (
        "seq" in words
        or "auto" in words
        or (language == "acc" and "kernels" in words and "independent" not in words)
    )
    span = reader.span(0, len(text.rstrip())) if offsets is not None else NO_SPAN
    claim = Claim(language, at, loops, not sequential, tuple(reductions), tuple(private), span)
    return claim, kind, tuple(reader.problems)


def kind_of_directive(language: str, words: Sequence[str]) -> str:
    """Of the first words of a directive: "", "other" or "inside", as ``parse_claim`` says."""
    if language == "acc":
        if "loop" in words and ("parallel" in words or "kernels" in words or "serial" in words):
            return ""
        return "inside" if words[:1] == ["loop"] else "" if words[:1] == ["kernels"] else "other"
    if "for" in words or "loop" in words:
        return "" if {"parallel", "teams"} & set(words) and words[0] != "distribute" else "inside"
    return "" if words[:1] == ["simd"] else "other"


def _count(reader: _Reader, argument: _Part) -> int:
    text = argument.text.strip()
    if not text.isdigit() or not int(text):
        raise reader.malformed("`collapse` needs a number of loops", argument)
    return int(text)


def _reductions(reader: _Reader, argument: _Part) -> list[tuple[str, str, Span]]:
    head, colon, rest = argument.text.partition(":")
    operator = head.split(",")[-1].strip()  # after modifiers such as `task,`
    if not colon or operator not in _REDUCTIONS:
        raise reader.malformed(f"`{operator}` is no reduction operator that is known here", argument)
    part = _Part(rest, argument.start + len(head) + 1)
    return [
        (_REDUCTIONS[operator], re.split(r"[\[\s]", item.text)[0], reader.span(item.start, item.end))
        for item in _split(part)
    ]
