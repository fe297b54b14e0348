"""A C file -> its loop nests, each read or refused with reasons.

    preprocess -> tokens -> declarations -> for each directive: statement, bytes, nest

Bad input never raises: what cannot be read is in the result, with the smallest span at fault.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from frontend_c.c_types import Types
from frontend_c.directives import MDH, Found, find_directives
from frontend_c.expressions import Context
from frontend_c.functions import Functions, parameters, why_not_combine
from frontend_c.hole import hole_test, preprocessed
from frontend_c.lexer import statement_end
from frontend_c.nest import ByMemory, Enclosing, NestReader, Result
from frontend_c.parsing import Chunk, Node, Unit, UnparsedError, c_ast, first_token, walk_nodes
from frontend_c.positions import Positions
from frontend_c.preprocess import CompileCommand, analysis_flags, preprocess
from frontend_c.scopes import local_types, surroundings
from frontend_c.tracking import Untracked
from lifter.annotations import BUILTIN_OPERATORS, Claim, Directive, parse_claim, parse_directive
from lifter.loop_nest import LoopNest
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.source import NO_SPAN, SourceFile, Span

__all__ = ["CompileCommand", "ReadResult", "Refused", "read"]


@dataclass(frozen=True)
class Refused:
    """A directive whose nest could not be read, and why."""

    name: str
    span: Span  # the nest where it is known, else the directive
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class ReadResult:
    nests: tuple[LoopNest, ...] = ()
    refused: tuple[Refused, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()  # what belongs to no nest


def read(source: SourceFile, command: CompileCommand, accept: Collection[str] = ()) -> ReadResult:
    """Every nest of a file.  ``accept``: other directives that count, of "scop", "omp" and "acc"."""
    _, warnings = analysis_flags(command)
    notes = tuple(replace(w, file=source.path) for w in warnings)
    try:
        reader = _FileReader(source, command, accept)
    except Refusal as refusal:
        return ReadResult(diagnostics=(*notes, _placed(refusal.diagnostic, source)))
    if not reader.directives:
        none = Diagnostic(
            "MDH007", "no directive in the file", source.path, help="write `#pragma mdh` above a loop nest"
        )
        return ReadResult(diagnostics=(*notes, none))
    results = reader.read_all()
    nests = tuple(r for r in results if isinstance(r, LoopNest))
    return ReadResult(nests, tuple(r for r in results if isinstance(r, Refused)), notes)


def _with_claim(nest: LoopNest, claim: Claim) -> LoopNest:
    return replace(nest, directive=replace(nest.directive, claims=(*nest.directive.claims, claim)))


def _placed(d: Diagnostic, source: SourceFile) -> Diagnostic:
    return d if d.file else replace(d, file=source.path)


class _FileReader:
    """One file: its tokens, its declarations, its functions."""

    def __init__(self, source: SourceFile, command: CompileCommand, accept: Collection[str]) -> None:
        self.source = source
        self.command = command
        self.whole = preprocessed(preprocess(source, command))
        self.stream = self.whole.stream
        self.positions = Positions(source, self.stream)
        self.directives = find_directives(self.positions, accept)
        self.unit = Unit(self.stream)
        self.context = Context(self.unit, self.positions, Types(self.unit, _signed_char(command)))
        self.functions = Functions(self.context)
        self.ordinals: dict[str, int] = {}
        self.labels: set[str] = set()
        self.taken = -1  # token at which the last nest ends

    def read_all(self) -> list[LoopNest | Refused]:
        """The nests of all directives, with what directives of other languages in them claim."""
        results: list[LoopNest | Refused] = []
        for found in self.directives:
            claim, problem = None, None
            if found.word in ("omp", "acc"):
                claim, kind, problems = parse_claim(
                    found.word, found.text, found.offsets, self._loop_at(found)
                )
                if claim is None:
                    continue
                claim = replace(claim, span=found.span)
                if found.token < self.taken:
                    if isinstance(results[-1], LoopNest):
                        results[-1] = _with_claim(results[-1], claim)
                    continue
                if kind == "inside":
                    what = f"`{found.word}{found.text.rstrip()}` shares a loop among threads that run already"
                    advice = "use `omp parallel for`" if found.word == "omp" else "use `acc parallel loop`"
                    problem = Diagnostic("MDH414", what, span=found.span, help=advice)
                problem = problem or next(iter(problems), None)
            one = self.read(found, problem)
            if claim is not None and isinstance(one, LoopNest):
                one = _with_claim(one, claim)
            results.append(one)
        return results

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
        try:
            nest = one.read()
        except Refusal as refusal:
            one.problems.append(refusal.diagnostic)
        except RecursionError:
            one.problems.append(Diagnostic("MDH003", "expressions are nested too deeply", span=one.span))
        if one.problems:
            placed = dict.fromkeys(_placed(d, self.source) for d in one.problems)
            return Refused(name, one.span, tuple(placed))
        return nest

    def _chunk(self, token: int) -> Chunk | None:
        return next((c for c in self.unit.chunks if c.kind == "function" and c.start <= token < c.end), None)


@dataclass(eq=False)
class _One:
    """The reading of one nest; ``span`` gets better as more is known."""

    file: _FileReader
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
        types = Types(
            self.file.unit, self.file.context.types.signed_char, local_types([*enclosing.around.scopes, nest])
        )
        context = Context(self.file.unit, self.file.positions, types)
        reader, (statements, params, buffers, scalars) = self._nest(context, enclosing, nest)
        if not any(hasattr(s, "iterator") for s in statements):
            raise refuse("MDH210", "nest holds no loop", self._head())
        named = [f for op in self.directive.combine_ops for f in op.functions if f not in BUILTIN_OPERATORS]
        for f in named:
            self.file.functions.get(f, self.directive.clause_span("combine_ops"))
        directive = replace(self.directive, assume=(*self.directive.assume, *reader.guards))
        return LoopNest(
            self.name, self.function, self.label, params, buffers, scalars, statements,
            self.file.functions.closure([*reader.called, *named]), directive, self.file.source.path,
            self.span, NO_SPAN if self.found.word == "scop" else self.found.span, self._function_span(),
        )  # fmt: skip

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
                return reader, reader.result([*body, *reader.finish()])
            except Untracked as lost:
                assert lost.name not in given_up, lost.name
                given_up[lost.name] = lost.refusal
            except ByMemory as more:
                assert not more.paths & by_memory
                by_memory |= more.paths

    # ------------------------------------------------------------------ where it is

    def _statement(self) -> tuple[int, int]:
        """Tokens of the nest, ``[first, end)``; MDH004 where there is none."""
        stream = self.file.stream
        first = self.found.token + 1
        while first < len(stream) and stream[first].kind == "pragma" and not MDH.match(stream[first].text):
            first += 1  # a pragma of another tool that belongs to the loop
        text = stream[first].text if first < len(stream) and stream[first].kind != "pragma" else ""
        if self.chunk is None or text not in ("for", "{"):
            raise refuse(
                "MDH004", "directive is not followed by a loop or block", self.found.span,
                help="put it directly before a `for` statement or a block",
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
        positions = self.file.positions
        begin = positions.original_index(first)
        stop = None if begin is None else statement_end(positions.original, begin)
        if begin is None or stop is None:
            place = positions.span(first, first) or self.found.span
            raise refuse(
                "MDH005", "nest has no exact place in the file: a macro hides a part of the loop", place,
                help="write the `for` and its braces out",
            )  # fmt: skip
        span = Span(positions.original[begin].start, positions.original[stop - 1].end)
        problem = hole_test(self.file.source, self.file.command, self.file.whole, span, first)
        if problem is not None:
            raise Refusal(problem)
        return span

    def _parsed(self, first: int, end: int) -> tuple[Node, Node]:
        """The function's definition and the nest's statement; MDH003 where they do not parse."""
        assert self.chunk is not None
        tree = self.file.unit.tree(self.chunk)
        if tree is None:
            assert self.chunk.failure is not None
            raise self._unparsed(self.chunk.failure)
        names = {t.text for t in self.file.stream[first:end] if t.kind == "id"}
        for begin, stop, failure in self.chunk.blanked:
            if (begin < end and first < stop) or (begin < first and names & self._declared(begin, stop)):
                raise self._unparsed(failure)
        definition = next((n for n in tree.ext if isinstance(n, c_ast.FuncDef)), None)
        for node in walk_nodes(definition) if definition is not None else ():
            if isinstance(node, c_ast.For | c_ast.Compound) and first_token(node) == first:
                return definition, node
        raise refuse("MDH003", f"function `{self.function}` cannot be parsed", self._head())

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
        k = next(n for n, t in enumerate(tokens) if t.start >= span.start)
        while k and tokens[k - 1].kind != "directive" and tokens[k - 1].text not in (b";", b"}"):
            k -= 1
        return Span(tokens[k].start, span.end)

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


_ASM = ("asm", "__asm__", "__asm", "if", "for", "while", "do", "switch", "return", "goto", "case", "default")


def _signed_char(command: CompileCommand) -> bool:
    """Is plain ``char`` signed?  The flags say, else the machine."""
    for flag in reversed(command.flags):
        if flag in ("-fsigned-char", "-fno-unsigned-char"):
            return True
        if flag in ("-funsigned-char", "-fno-signed-char"):
            return False
    return platform.machine().lower() not in ("aarch64", "armv7l", "ppc64le", "s390x", "riscv64")
