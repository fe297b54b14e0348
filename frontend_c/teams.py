"""Directives of OpenMP and OpenACC because of which a call cannot stand in place of a nest.

    #pragma omp parallel
    {
    #pragma omp for                 every thread of the team comes by: a call here would do
        for (...)                   the whole of the nest once per thread
    }

Such a nest is read and lifted as any other, since its meaning is that of the plain loops; only it is not
replaced.  The same goes for what runs on a device, and for loops to which a directive above them belongs.
``-fopenmp``, without which nothing is ever spliced, makes these directives count, whether or not they are
read as directives of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frontend_c.lexer import Token, statement_end
from frontend_c.positions import PreToken
from lifter.annotations import kind_of_directive

_HEAD = re.compile(r"(omp|acc)\b\s*((?:[a-z]+\b(?!\s*\()\s*)*)")
_COLLAPSE = re.compile(r"\bcollapse\s*\(\s*(\d+)")
_FOR_LOOPS = re.compile(r"(?:GCC|clang)\s+(?:unroll|ivdep|loop|novector)\b|(?:no)?unroll\b|ivdep\b")
_OWN = re.compile(r"\b(?:private|firstprivate|lastprivate|linear|reduction|in_reduction)\s*\(([^()]*)\)")
# constructs in a nest that one thread may meet as well as many
_ANYWHERE = {"simd", "atomic", "task", "taskloop", "taskwait", "taskyield", "taskgroup", "flush", "unroll",
             "tile", "cancellation", "cancel", "scan"}  # fmt: skip
_LOOPS = {"for", "loop", "simd", "distribute", "taskloop", "tile", "unroll"}
_DATA_ON_DEVICE = {"data", "host_data", "parallel", "kernels", "serial"}
_STANDALONE = {"update", "enter", "exit"}


@dataclass(frozen=True, slots=True)
class Pragma:
    """A directive of OpenMP or OpenACC: its token, its words up to the first clause with an argument."""

    token: int
    language: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"`{self.language} {' '.join(self.words)}`"

    @property
    def kind(self) -> str:
        """ "" starts its own threads, "inside" shares a loop among those that run, or "other"."""
        return kind_of_directive(self.language, list(self.words))


@dataclass(frozen=True, slots=True)
class InTheWay:
    """The directive because of which a nest is not replaced, what is the matter, the smallest edit."""

    token: int
    message: str
    help: str


def pragma_at(stream: Sequence[PreToken], k: int) -> Pragma | None:
    """The directive of OpenMP or OpenACC at a token, if it is one."""
    return _pragma(k, stream[k].text) if stream[k].kind == "pragma" else None


def _pragma(k: int, text: str) -> Pragma | None:
    found = _HEAD.match(text)
    return found and Pragma(k, found[1], tuple(found[2].split()), text)


def belongs_to_loop(text: str) -> bool:
    """Does a pragma (what follows the word) need a loop next, so that nothing may come between?"""
    pragma = _pragma(0, text)
    return bool(pragma and set(pragma.words) & _LOOPS) or _FOR_LOOPS.match(text) is not None


def around(stream: Sequence[PreToken], tokens: Sequence[Token], start: int, stop: int) -> list[Pragma]:
    """Directives among tokens ``[start, stop)`` whose statement the one at ``stop`` is, or is a part of."""
    nest = _statement(stream, stop)
    out = []
    for k in range(start, stop):
        pragma = pragma_at(stream, k)
        if pragma is not None:
            begin = _statement(stream, k)
            end = statement_end(tokens, begin)
            if begin <= nest and end is not None and end > nest:
                out.append(pragma)
    return out


def _statement(stream: Sequence[PreToken], k: int) -> int:
    """The first token from ``k`` on that is no pragma."""
    return next((j for j in range(k, len(stream)) if stream[j].kind != "pragma"), len(stream))


def region_of(pragmas: Sequence[Pragma]) -> Pragma | None:
    """The innermost of the directives around a nest that starts a team of threads."""
    return next((p for p in reversed(pragmas) if {"parallel", "kernels", "serial"} & set(p.words)), None)


def own_variables(region: Pragma) -> set[str]:
    """Variables of which, as the clauses say, each thread of the region has its own."""
    named = (part for clause in _OWN.finditer(region.text) for part in clause[1].split(":")[-1].split(","))
    return {re.split(r"[\[\s]", name.strip())[0] for name in named}


def in_the_way(
    stream: Sequence[PreToken], tokens: Sequence[Token], function: int, directive: int, nest: tuple[int, int]
) -> InTheWay | None:
    """Why the nest, of tokens ``[first, end)`` below its directive, must stay; None where nothing is wrong.

    ``function``: the token at which the function starts.  ``directive``: that from which on pragmas belong
    to the nest, so that the call comes before them.
    """
    first, end = nest
    outside = around(stream, tokens, function, directive)
    objections = (
        *_above(stream, directive),
        *_between(stream, directive, first, region_of(outside)),
        *(o for p in outside if (o := _outer_objection(stream, p, first)) is not None),
        *_within(stream, tokens, first, end),
    )
    return next(iter(objections), None)


def _above(stream: Sequence[PreToken], directive: int) -> Iterator[InTheWay]:
    """Pragmas directly above the directive that need a loop next, where the call would come."""
    k = directive - 1
    while k >= 0 and stream[k].kind == "pragma":
        if belongs_to_loop(stream[k].text):
            pragma = pragma_at(stream, k)
            name = f"{pragma}" if pragma else f"`{stream[k].text}`"
            yield InTheWay(k, f"{name} above the directive belongs to the loop", "put `#pragma mdh` above it")
        k -= 1


def _between(
    stream: Sequence[PreToken], directive: int, first: int, region: Pragma | None
) -> Iterator[InTheWay]:
    """Directives that belong to the nest: the call would come before them."""
    for k in range(directive, first):
        pragma = pragma_at(stream, k)
        if pragma is None or not pragma.kind or set(pragma.words[:1]) & {"unroll", "tile"}:
            continue
        if pragma.kind == "inside":
            yield InTheWay(
                k, f"{pragma} shares a loop among threads that run already", _own_team(pragma, region)
            )
        else:
            yield InTheWay(k, f"{pragma} is not about the loop alone", "put `#pragma mdh` below it")


def _own_team(pragma: Pragma, region: Pragma | None) -> str:
    """The smallest edit with which a loop has threads of its own."""
    own = "omp parallel for" if pragma.language == "omp" else "acc parallel loop"
    if region is None:
        return f"use `{own}`"
    return f"end the region of {region} before the loop, and use `{own}`"


def _outer_objection(stream: Sequence[PreToken], pragma: Pragma, first: int) -> InTheWay | None:
    words = set(pragma.words)
    if words & _STANDALONE:
        return None
    device = "target" in words if pragma.language == "omp" else bool(words & _DATA_ON_DEVICE)
    if device:
        what = "keeps data on a device" if words & {"data", "host_data"} else "runs on a device"
        return InTheWay(pragma.token, f"{pragma} around the nest {what}", "take the nest out of the region")
    if words & {"simd", "loop"}:
        return InTheWay(pragma.token, f"{pragma} around the nest allows no threads in it",
                        "put `#pragma mdh` above the outer loop")  # fmt: skip
    loops = sum(stream[k].kind == "id" and stream[k].text == "for" for k in range(pragma.token, first))
    count = _COLLAPSE.search(pragma.text)
    if count is not None and loops < int(count[1]):
        return InTheWay(pragma.token, f"`collapse({count[1]})` of {pragma} takes in the loop of the nest",
                        "put `#pragma mdh` above the outer loop")  # fmt: skip
    return None


def _within(stream: Sequence[PreToken], tokens: Sequence[Token], first: int, end: int) -> Iterator[InTheWay]:
    """Directives in the nest that are for a team, without a region in the nest that starts one."""
    for k in range(first, end):
        pragma = pragma_at(stream, k)
        if pragma is None or not pragma.kind or set(pragma.words[:1]) & _ANYWHERE:
            continue
        if pragma.language == "acc" and pragma.kind == "other":
            continue
        if "parallel" in pragma.words or region_of(around(stream, tokens, first, k)):
            continue
        yield InTheWay(k, f"{pragma} in the nest is for threads that run already", _own_team(pragma, None))
