"""The directives of a preprocessed C file -> its loop nests, each read or refused with reasons.

    tokens -> declarations -> for each directive: statement, bytes, nest

Bad input never raises: what cannot be read is in the result, with the smallest span at fault.
"""

from __future__ import annotations

import platform
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from frontend_c.c_types import Types, Value
from frontend_c.data_regions import DataRegion, RegionName, parse_data, region_in, thread_uses
from frontend_c.directives import MDH, Found
from frontend_c.expressions import Context
from frontend_c.file import Preprocessing, ReadResult, Refused, placed, read
from frontend_c.functions import Functions, parameters, why_not_combine
from frontend_c.hole import Place, all_exact, hole_test
from frontend_c.lexer import Token, is_statement_list, statement_end
from frontend_c.loops import HELP
from frontend_c.members import roots, set_first
from frontend_c.nest import ByMemory, Enclosing, NestReader, Result
from frontend_c.parsing import Chunk, Node, Unit, UnparsedError, c_ast, definition_in, first_token, walk_nodes
from frontend_c.preprocess import CompileCommand
from frontend_c.scopes import Variable, local_types, replaced, surroundings
from frontend_c.teams import around, in_the_way, own_variables, pragma_at, region_of
from frontend_c.tracking import Untracked
from lifter.annotations import BUILTIN_OPERATORS, Claim, Directive, parse_claim, parse_directive
from lifter.loop_nest import LoopNest, names_in_text
from lifter.trees import has_loop, has_while, loops_in
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.expr import ScalarType
from mdh_core.ir import Param
from mdh_core.source import NO_SPAN, Span

__all__ = ["CompileCommand", "ReadResult", "Refused", "read"]


_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*\()")


def _with_claim(nest: LoopNest | Refused, claim: Claim) -> LoopNest | Refused:
    """The nest with a claim, if it is about a loop in it."""
    if not isinstance(nest, LoopNest) or not nest.span.start <= claim.at < nest.span.end:
        return nest
    return replace(nest, directive=replace(nest.directive, claims=(*nest.directive.claims, claim)))


def apart(part: LoopNest | Refused, reasons: Sequence[Diagnostic]) -> LoopNest | Refused:
    """A loop of a region that is not one nest for these reasons, with a remark that says so."""
    why = next((d for d in reasons if d.severity == "error"), None)
    if why is None or not isinstance(part, LoopNest):
        return part
    remark = Diagnostic("MDH105", f"region is not one nest: {why.message}", span=why.span)
    return replace(part, remarks=(*part.remarks, remark))


def read_directives(file: Preprocessing) -> ReadResult:
    """What stands behind the directives of a file."""
    reader = FileReader(file)
    results = reader.read_all()
    nests = tuple(r for r in results if isinstance(r, LoopNest))
    regions, wrong = reader.data_regions([r.span for r in results])
    refused = tuple(r for r in results if isinstance(r, Refused))
    return ReadResult(nests, refused, wrong, reader.parts, regions)


class FileReader:
    """One file: its tokens, its declarations, its functions."""

    def __init__(self, file: Preprocessing) -> None:
        self.source = file.source
        self.command = file.command
        self.whole = file.whole
        self.stream = self.whole.stream
        self.positions = file.positions
        self.data = file.data
        self.directives = file.directives
        self.unit = Unit(self.stream)
        self.context = Context(self.unit, self.positions, Types(self.unit, _signed_char(self.command)))
        self.functions = Functions(self.context)
        self.ordinals: dict[str, int] = {}
        self.labels: set[str] = set()
        self.parts: dict[str, tuple[LoopNest | Refused, ...]] = {}
        self.taken = -1  # token at which the last nest ends
        self.visible: Mapping[str, Variable] = {}  # what is declared around it

    @cached_property
    def exact(self) -> frozenset[Span]:
        """Nests that passed the hole test together; others have to pass it one by one."""
        places: list[Place] = []
        for directive in sorted(self.directives, key=lambda d: d.token):
            first = self.after_pragmas(directive.token + 1)
            found = self.original_statement(first) if not directive.parts else None
            if found is None or (places and found[1].start < places[-1].span.end):
                continue
            tokens, span = found
            if not any(t.kind == "directive" or t.text in (b"_Pragma", b"__COUNTER__") for t in tokens):
                places.append(Place(span, first))
        together = len(places) > 1 and all_exact(self.source, self.command, self.whole, places)
        return frozenset(p.span for p in places) if together else frozenset()

    def after_pragmas(self, k: int) -> int:
        """The first token from ``k`` on that is no pragma of another tool."""
        stream = self.stream
        while k < len(stream) and stream[k].kind == "pragma" and not MDH.match(stream[k].text):
            k += 1
        return k

    def original_statement(self, first: int) -> tuple[Sequence[Token], Span] | None:
        """Tokens and bytes of the statement that starts at a preprocessed token, or None."""
        original = self.positions.original
        begin = self.positions.original_index(first)
        stop = None if begin is None else statement_end(original, begin)
        if begin is None or stop is None:
            return None
        return original[begin:stop], Span(original[begin].start, original[stop - 1].end)

    def read_all(self) -> list[LoopNest | Refused]:
        """The nests of all directives, with what directives of other languages in them claim."""
        results: list[LoopNest | Refused] = []
        for found in self.directives:
            claim, kind, problem = None, "", None
            if found.word in ("omp", "acc"):
                claim, kind, problems = parse_claim(
                    found.word, found.text, found.offsets, self._loop_at(found)
                )
                if claim is None:
                    continue
                claim = replace(claim, span=found.span)
                if found.token < self.taken:
                    claim = self._in_team(claim, kind, found)
                    results = [_with_claim(r, claim) for r in results]
                    for name, parts in self.parts.items():
                        self.parts[name] = tuple(_with_claim(p, claim) for p in parts)
                    continue
                problem = next(iter(problems), None)
            if found.parts:
                results += self.read_region(found)
                continue
            one = self.read(found, problem)
            results.append(one if claim is None else _with_claim(one, self._in_team(claim, kind, found)))
        return results

    def _in_team(self, claim: Claim, kind: str, found: Found) -> Claim:
        """The claim with what the threads that meet it have of their own: all that the parallel region
        declares, or, where that is not to be seen, all that belongs to the function."""
        chunk = self._chunk(found.token)
        if kind != "inside" or chunk is None:
            return claim
        region = region_of(around(self.stream, self.whole.tokens, chunk.start, found.token))
        since = chunk.start if region is None else region.token
        own = {v.name for v in self.visible.values() if v.storage in ("param", "local") and v.order > since}
        if region is not None:
            own |= own_variables(region)
        return replace(claim, own=tuple(sorted(own)))

    def _loop_at(self, found: Found) -> int:
        """Offset of the first token after a directive and other pragmas, or -1."""
        k = next(
            (k for k in range(found.token + 1, len(self.stream)) if self.stream[k].kind != "pragma"), None
        )
        at = None if k is None else self.positions.original_index(k)
        return -1 if at is None else self.positions.original[at].start

    def read(self, found: Found, problem: Diagnostic | None = None) -> LoopNest | Refused:
        """The nest of a directive."""
        chunk = self._chunk(found.token)
        function = chunk.name if chunk else "?"
        ordinal = self.ordinals.get(function, 0)
        self.ordinals[function] = ordinal + 1
        directive, problems = Directive(), tuple[Diagnostic, ...]()
        if found.word == "mdh":
            directive, problems = parse_directive(found.text, found.offsets)
        if problem is not None:
            problems = (*problems, problem)
        name = f"{self.source.path}::{function}::{directive.label or ordinal}"
        one = _One(
            self, found, chunk, function, directive.label or str(ordinal), name, directive, list(problems)
        )
        return self._result(one)

    def read_undirected(self, places: Sequence[Found], labels: Sequence[str]) -> list[LoopNest | Refused]:
        """The nests of loops that have no directive (``word`` is empty), in order, none inside another."""
        self.directives = list(places)
        self.__dict__.pop("exact", None)
        self.labels.clear()
        self.taken = -1
        results = []
        for found, label in zip(places, labels, strict=True):
            chunk = self._chunk(found.token)
            function = chunk.name if chunk else "?"
            name = f"{self.source.path}::{function}::{label}"
            results.append(self._result(_One(self, found, chunk, function, label, name, Directive(), [])))
        return results

    def read_region(self, found: Found) -> list[LoopNest | Refused]:
        """The nest that a region of several statements is, or else those of its loops.

        It bears the name of the first of these, and names of later nests count all of them.
        """
        chunk = self._chunk(found.token)
        function = chunk.name if chunk else "?"
        label, taken = str(self.ordinals.get(function, 0)), self.taken
        parts = tuple(self.read(part) for part in found.parts)
        taken, self.taken = self.taken, taken
        name = f"{self.source.path}::{function}::{label}"
        whole = self._result(_Region(self, found, chunk, function, label, name, Directive(), []))
        if isinstance(whole, LoopNest):
            self.parts[name] = parts
            return [whole]
        self.taken = taken
        return [apart(part, whole.diagnostics) for part in parts]

    def data_regions(self, nests: Sequence[Span]) -> tuple[tuple[DataRegion, ...], tuple[Diagnostic, ...]]:
        """The regions of all data directives, and what is wrong with the others.  ``nests``: their bytes."""
        regions: list[DataRegion] = []
        wrong: list[Diagnostic] = []
        counted: dict[str, int] = {}
        for found in self.data:
            chunk = self._chunk(found.token)
            function = chunk.name if chunk else "?"
            label = f"data{counted.setdefault(function, 0)}"
            counted[function] += 1
            names, problems = parse_data(found.text, found.offsets, found.span)
            name = f"{self.source.path}::{function}::{label}"
            one = _One(self, found, chunk, function, label, name, Directive(), list(problems))
            try:
                region = one.data_region(names)
                if any(n.start <= region.span.start < n.end for n in nests):
                    raise refuse("MDH418", "data directive inside of a nest", found.span)
            except Refusal as refusal:
                one.problems.append(refusal.diagnostic)
            wrong += [placed(d, self.source) for d in one.problems]
            if not one.problems:
                regions.append(region)
        return tuple(regions), tuple(dict.fromkeys(wrong))

    def _result(self, one: _One) -> LoopNest | Refused:
        try:
            nest = one.read()
        except Refusal as refusal:
            one.problems.append(refusal.diagnostic)
        except RecursionError:
            one.problems.append(Diagnostic("MDH003", "expressions are nested too deeply", span=one.span))
        if one.problems:
            problems = dict.fromkeys(placed(d, self.source) for d in one.problems)
            return Refused(one.name, one.span, tuple(problems))
        return nest

    def _chunk(self, token: int) -> Chunk | None:
        return next((c for c in self.unit.chunks if c.kind == "function" and c.start <= token < c.end), None)


@dataclass(eq=False)
class _One:
    """The reading of one nest; ``span`` gets better as more is known."""

    file: FileReader
    found: Found
    chunk: Chunk | None
    function: str
    label: str
    name: str
    directive: Directive
    problems: list[Diagnostic]
    span: Span = NO_SPAN

    def read(self) -> LoopNest:
        self.span = self.found.span
        first, last = self._statement()
        self.span = self._bytes(first, last)
        definition, nest = self._parsed(first, last)
        self._check_operators()
        enclosing = self._enclosing(definition, nest, last)
        self.file.visible = enclosing.around.variables
        types = Types(
            self.file.unit, self.file.context.types.signed_char, local_types([*enclosing.around.scopes, nest])
        )
        context = Context(self.file.unit, self.file.positions, types)
        reader, (statements, params, buffers, scalars) = self._nest(context, enclosing, nest)
        if not any(map(has_loop, statements)):
            if has_while(statements):
                raise refuse("MDH210", "nest holds no loop that counts from one bound to another",
                             self._head(), help=HELP)  # fmt: skip
            raise refuse("MDH210", "nest holds no loop", self._head())
        named = [f for op in self.directive.combine_ops for f in op.functions if f not in BUILTIN_OPERATORS]
        for f in named:
            self.file.functions.get(f, self.directive.clause_span("combine_ops"))
        directive = replace(self.directive, assume=(*self.directive.assume, *reader.guards))
        params = (*params, *self._of_assumptions(reader, nest, {p.name for p in params}))
        known = {name for p in params for name in names_in_text(p.value)}
        known |= {s.name for s in scalars} | {b.base for b in buffers}
        known |= {x.source_name for x in loops_in(statements) if x.declared_outside}
        return LoopNest(
            self.name, self.function, self.label, params, buffers, scalars, statements,
            self.file.functions.closure([*reader.called, *named]), directive, self.file.source.path,
            self.span, NO_SPAN if self.found.word in ("", "scop") else self.found.span, self._function_span(),
            self.found.end >= 0, self._remarks(first, last), (*roots(reader), *set_first(reader, known)),
            facts=tuple(dict.fromkeys(reader.facts)),
        )  # fmt: skip

    def _of_assumptions(self, reader: NestReader, nest: Node, known: set[str]) -> list[Param]:
        """Scalars that only `assume` reads.  What is not declared here may be a macro."""
        found: list[Param] = []
        for name in dict.fromkeys(n for text in self.directive.assume for n in _NAME.findall(text)):
            try:
                b = None if name in known else reader.lookup(name, nest)
            except Refusal:
                continue
            if b is None or b.value is not None:
                continue
            is_scalar = isinstance(b.ctype, Value) and isinstance(b.ctype.type, ScalarType)
            if not is_scalar or b.written or b.name != name:
                why = "the nest writes it" if b.written else "it is no scalar"
                headline = f"`assume` cannot test `{name}`: {why}"
                place = self.directive.clause_span("assume")
                raise refuse("MDH409", headline, place, help="name scalars that the nest only reads")
            assert isinstance(b.ctype, Value)
            found.append(Param(b.name, b.ctype.type, b.source, b.ctype.spelling))
        return found

    def _nest(self, context: Context, enclosing: Enclosing, nest: Node) -> tuple[NestReader, Result]:
        """The statement, read; again for what turns out to be known less well than hoped."""
        given_up: dict[str, Refusal] = {}
        by_memory: frozenset[str] = frozenset()
        while True:
            reader = NestReader(context, enclosing, self.file.functions, nest, given_up, by_memory)
            try:
                body = reader.guarded(nest)
                if reader.problems or self.problems:
                    self.problems += reader.problems
                    raise Refusal(self.problems.pop())
                exact = self.directive.fp == "exact"
                return reader, reader.result([*body, *reader.finish()], exact)
            except Untracked as lost:
                assert lost.name not in given_up, lost.name
                given_up[lost.name] = lost.refusal
            except ByMemory as more:
                assert not more.paths & by_memory
                by_memory |= more.paths

    def _remarks(self, first: int, end: int) -> tuple[Diagnostic, ...]:
        """MDH414 where a call cannot stand in place of the nest."""
        assert self.chunk is not None
        file = self.file
        alone = self.found.word == "scop" and self.found.end < 0
        below = self.found.token + (not self.found.word)  # pragmas from here on stay with the nest
        below = first if alone else below
        found = in_the_way(file.stream, file.whole.tokens, self.chunk.start, below, (first, end))
        if found is None:
            return ()
        span = file.positions.source.line_span(file.stream[found.token].line)
        return (Diagnostic("MDH414", found.message, span=span, help=found.help),)

    # ------------------------------------------------------------------ where it is

    def _statement(self) -> tuple[int, int]:
        """Tokens of the nest, ``[first, end)``; MDH004 where there is none."""
        stream = self.file.stream
        first = self.file.after_pragmas(self.found.token + 1)
        text = stream[first].text if first < len(stream) and stream[first].kind != "pragma" else ""
        if self.chunk is None or text not in ("for", "while", "do", "if", "{"):
            raise refuse(
                "MDH004", "directive is not followed by a loop or block", self.found.span,
                help="put it directly before a loop, an `if` with loops in it or a block",
            )  # fmt: skip
        if first < self.file.taken:
            raise refuse(
                "MDH004", "directive inside another nest", self.found.span,
                help="remove one of the two directives",
            )  # fmt: skip
        end = statement_end(self.file.whole.tokens, first)
        if end is None:
            raise refuse("MDH003", "the statement after the directive has no end", self.found.span)
        self.file.taken = end
        key = f"{self.function}::{self.label}"
        if key in self.file.labels:
            what = f"label `{self.label}` is used twice in `{self.function}`"
            self.problems.append(Diagnostic("MDH402", what, span=self.directive.clause_span("name")))
        self.file.labels.add(key)
        return first, end

    def _bytes(self, first: int, end: int) -> Span:
        """The bytes of the nest, checked by the hole test."""
        file = self.file
        found = file.original_statement(first)
        if found is not None and found[1] in file.exact:
            return found[1]
        problem: Diagnostic | None = None
        spans = (NO_SPAN if found is None else found[1], self._around_macros(end))
        for span in dict.fromkeys(filter(None, spans)):
            tried = hole_test(file.source, file.command, file.whole, span, first)
            if tried is None:
                return span
            problem = problem or tried
        if problem is not None:
            raise Refusal(problem)
        raise refuse(
            "MDH005", "nest has no exact place in the file: a macro makes more than the loop",
            file.positions.span(first, first) or self.found.span, help="write the `for` and its braces out",
        )  # fmt: skip

    def _around_macros(self, end: int) -> Span:
        """From what follows the directive to what precedes preprocessed token ``end``: the nest, where
        calls of macros make its head or its end.  Nothing where macros make what comes next, too."""
        positions = self.file.positions
        last = positions.original_index(end - 1)
        stop = positions.original_index(end) if last is None else last + 1
        begin = bisect_left(positions.original, self.found.span.end, key=lambda t: t.start)
        while begin < len(positions.original) and positions.original[begin].kind == "directive":
            begin += 1
        if stop is None or stop <= begin:
            return NO_SPAN
        inside = positions.original[begin:stop]
        if any(t.kind == "directive" and not _harmless(t.text) for t in inside):
            return NO_SPAN
        return Span(inside[0].start, inside[-1].end)

    def _parsed(self, first: int, end: int) -> tuple[Node, Node]:
        """The function's definition and the nest's statement; MDH003 where they do not parse."""
        definition = self._definition(first, end)
        for node in walk_nodes(definition):
            if isinstance(node, _NESTS) and first_token(node) == first:
                return definition, node
        raise refuse("MDH003", f"function `{self.function}` cannot be parsed", self._head())

    def _definition(self, first: int, end: int) -> Node:
        assert self.chunk is not None
        tree = self.file.unit.tree(self.chunk)
        if tree is None:
            assert self.chunk.failure is not None
            raise self._unparsed(self.chunk.failure)
        names = {t.text for t in self.file.stream[first:end] if t.kind == "id"}
        for begin, stop, failure in self.chunk.blanked:
            if (begin < end and first < stop) or (begin < first and names & self._declared(begin, stop)):
                raise self._unparsed(failure)
        definition = definition_in(tree)
        if definition is None:
            raise refuse("MDH003", f"function `{self.function}` cannot be parsed", self._head())
        return definition

    def _unparsed(self, failure: UnparsedError) -> Refusal:
        return refuse(
            "MDH003", f"function `{self.function}` cannot be parsed: {failure.message}",
            self.file.positions.span(failure.token, failure.token),
            help="move the nest into a function of its own",
        )  # fmt: skip

    def _declared(self, begin: int, end: int) -> set[str]:
        """What an unreadable statement may declare: nothing if it looks like an expression."""
        part = self.file.stream[begin:end]
        second = part[1].text if len(part) > 1 else ""
        if part[0].kind != "id" or part[0].text in _ASM or second in ("=", "(", "[", ".", "->", "++", "--"):
            return set()
        return {
            t.text for before, t in pairwise(part)
            if t.kind == "id" and (before.kind == "id" or before.text in ("*", ",", ")"))
        }  # fmt: skip

    def _enclosing(self, definition: Node, nest: Node, end: int) -> Enclosing:
        assert self.chunk is not None
        around = surroundings(definition, parameters(definition), nest)
        assert around is not None
        after = frozenset(t.text for t in self.file.stream[end : self.chunk.end] if t.kind == "id")
        whole = not self.chunk.blanked
        around.repeats = around.repeats or not whole  # a label may be among what was left out
        return Enclosing(self.function, definition, around, self.chunk.names, after, whole)

    def _head(self) -> Span:
        """The first line of the nest."""
        source = self.file.source
        if not self.span:
            return self.span
        return Span(
            self.span.start, min(self.span.end, source.line_span(source.line_col(self.span.start)[0]).end)
        )

    def _function_span(self) -> Span:
        """The enclosing definition, from its first token in the file: attributes that the parser
        does not see, and specifiers that a macro makes, belong to it."""
        assert self.chunk is not None
        positions = self.file.positions
        span = positions.span(self.chunk.start, self.chunk.end - 1)
        tokens = positions.original
        k = bisect_left(tokens, span.start, key=lambda t: t.start)
        while k and tokens[k - 1].kind != "directive" and tokens[k - 1].text not in (b";", b"}"):
            k -= 1
        return Span(tokens[k].start, span.end)

    # ------------------------------------------------------------------ data regions

    def data_region(self, names: Sequence[RegionName]) -> DataRegion:
        """The region of a data directive; raises ``Refusal`` where there is none (MDH418, MDH419)."""
        file = self.file
        first = file.after_pragmas(self.found.token + 1)
        is_block = first < len(file.stream) and file.stream[first].text == "{"
        whole = file.original_statement(first) if is_block else None
        end = statement_end(file.whole.tokens, first) if is_block else None
        if self.chunk is None or end is None or whole is None or file.source.data[whole[1].start] != _BRACE:
            raise refuse(
                "MDH418", "data directive is not before a compound statement", self.found.span,
                help="put it directly before the `{` of a block with several nests",
            )  # fmt: skip
        definition, block = self._parsed(first, end)
        draft = DataRegion(
            self.name, self.function, self.label, tuple(names), whole[1], self.found.span
        )
        region, wrong = region_in(block, definition, draft, file.context)
        self.problems += wrong
        uses = region.uses + thread_uses(file.stream, first, end, file.positions)
        uses_here = tuple(replace(u, diagnostic=placed(u.diagnostic, file.source)) for u in uses)
        return replace(region, uses=uses_here)

    # ------------------------------------------------------------------ combine functions

    def _check_operators(self) -> None:
        """MDH405 and MDH406 for the functions that the directive names."""
        for op in self.directive.combine_ops:
            for name in op.functions:
                if name not in BUILTIN_OPERATORS:
                    self.problems += self._check_function(name, op.span)

    def _check_function(self, name: str, span: Span) -> Sequence[Diagnostic]:
        chunk = self.file.unit.function_chunk(name)
        if chunk is None or chunk.start > self.found.token:
            what = "is not defined" if chunk is None else "is defined after the nest"
            return [Diagnostic("MDH405", f"combine function `{name}` {what}", span=span,
                               help="define it above the nest")]  # fmt: skip
        why = why_not_combine(self.file.context, name)
        if why:
            shapes = "use `T f(T, T)` or `void f(T *res, const T *lhs, const T *rhs)`"
            what = f"`{name}` is no combine function: {why}"
            return [Diagnostic("MDH406", what, span=span, help=shapes)]
        return []


@dataclass(eq=False)
class _Region(_One):
    """The statements of ``#pragma scop ... #pragma endscop``, read as if they stood in a block."""

    def _statement(self) -> tuple[int, int]:
        stream = self.file.stream
        first, end = self.found.token + 1, self.found.end
        while end > first and stream[end - 1].kind == "pragma":
            end -= 1
        above = self.found.token - 1
        while above >= 0 and stream[above].kind == "pragma" and pragma_at(stream, above) is None:
            above -= 1
        # after anything else, the first statement alone is the body of an `if`, a loop or a directive
        apart = above >= 0 and stream[above].kind == "punct" and stream[above].text in (";", "{", "}")
        if self.chunk is None or not apart or not is_statement_list(self.file.whole.tokens, first, end):
            raise refuse("MDH004", "the region is no list of statements", self.found.span)
        if first < self.file.taken:
            raise refuse("MDH004", "directive inside another nest", self.found.span)
        self.file.taken = end
        return first, end

    def _bytes(self, first: int, end: int) -> Span:
        """From after the one directive up to the other, without what braces around it must not hold."""
        original = self.file.positions.original
        begin = next((k for k, t in enumerate(original) if t.start >= self.found.span.end), len(original))
        stop = next((k for k in range(begin, len(original)) if _ENDSCOP.match(original[k].text)), begin)
        while stop > begin and original[stop - 1].kind == "directive":
            stop -= 1
        lines = [t.text for t in original[begin:stop] if t.kind == "directive"]
        if begin == stop or not is_statement_list(original, begin, stop) or not all(map(_harmless, lines)):
            raise refuse("MDH005", "region has no exact place in the file", self.found.span)
        span = Span(original[begin].start, original[stop - 1].end)
        problem = hole_test(self.file.source, self.file.command, self.file.whole, span, first, end)
        if problem is not None:
            raise Refusal(problem)
        return span

    def _parsed(self, first: int, end: int) -> tuple[Node, Node]:
        """The definition with the statements of the region in a block, and that block."""
        definition = self._definition(first, end)
        for parent in walk_nodes(definition):
            items = (parent.block_items or []) if isinstance(parent, c_ast.Compound) else []
            here = [k for k, item in enumerate(items) if first <= (first_token(item) or 0) < end]
            if here and (first_token(parent) or 0) < first:
                inside = items[here[0] : here[-1] + 1]
                self._check_declarations(inside, end)
                block = c_ast.Compound(inside, inside[0].coord)
                around = c_ast.Compound([*items[: here[0]], block, *items[here[-1] + 1 :]], parent.coord)
                return replaced(definition, parent, around), block
        raise refuse("MDH003", f"function `{self.function}` cannot be parsed", self._head())

    def _check_declarations(self, items: Sequence[Node], end: int) -> None:
        """Braces must not hide a declaration from what comes after the region."""
        assert self.chunk is not None
        rest = self.file.stream[end : self.chunk.end]
        after = {word for t in rest if t.kind in ("id", "pragma") for word in _WORD.findall(t.text)}
        for item in items:
            if not isinstance(item, c_ast.Decl | c_ast.Typedef):
                continue
            at = first_token(item) or 0
            for n in walk_nodes(item):
                if getattr(n, "name", None) in after and isinstance(n, _DECLARES):
                    raise refuse(
                        "MDH006", f"`{n.name}` is declared in it and used after it",
                        self.file.positions.span(at, at),
                        help="declare it before the region",
                    )  # fmt: skip


_BRACE = ord("{")
_NESTS = (c_ast.For, c_ast.While, c_ast.DoWhile, c_ast.If, c_ast.Compound)  # what a directive may stand above
_ENDSCOP = re.compile(rb"#\s*pragma\s+endscop\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
_DECLARES = (c_ast.Decl, c_ast.Typedef, c_ast.Struct, c_ast.Union, c_ast.Enum, c_ast.Enumerator)


def _harmless(line: bytes) -> bool:
    """Is a preprocessor line a pragma?  Braces that are generated on both sides of others might not match."""
    return re.match(rb"#\s*pragma\b", line) is not None


_ASM = ("asm", "__asm__", "__asm", "if", "for", "while", "do", "switch", "return", "goto", "case", "default")


def _signed_char(command: CompileCommand) -> bool:
    """Is plain ``char`` signed?  The flags say, else the machine."""
    for flag in reversed(command.flags):
        if flag in ("-fsigned-char", "-fno-unsigned-char"):
            return True
        if flag in ("-funsigned-char", "-fno-signed-char"):
            return False
    return platform.machine().lower() not in ("aarch64", "armv7l", "ppc64le", "s390x", "riscv64")
