"""What a report says, as frozen values: one JSON object, from which page and Markdown are made.

    report  ::= Report(title, version, summary, nests*, environment, board?, notes*)
    nest    ::= Nest(name, state, source, result, steps*, picture, counts, results*, searches*, diagnostics*)
    result  ::= Result(fingerprint, sizes, speedup, verification, block)          # of lock file or database
    search  ::= Search(…, trials*, rejected*)                                      # one of the database

Times are seconds, ratios original / result.  ``report.collect`` makes it, ``as_json`` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mdh_lift import means
from tuning.importance import Importance

SCHEMA_VERSION = 1
STATES = ("spliced", "tuned", "lifted", "partial", "refused", "stale")


@dataclass(frozen=True, slots=True)
class Ratio:
    """A speedup with its interval; ``low`` and ``high`` may be those of less than ``confidence`` 0.95."""

    median: float
    low: float
    high: float
    confidence: float = 0.95


@dataclass(frozen=True, slots=True)
class Text:
    """Source text and the number of its first line; ``origin`` says where it is from.

    ``left_out``: lines behind it that are not here.
    """

    text: str
    line: int = 1
    origin: str = ""
    left_out: int = 0

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the lifted nest: an expression, a host loop around what follows, statements as they were."""

    kind: str  # "md_hom" | "host_loop" | "sequential"
    depth: int
    text: str
    mathml: str = ""


@dataclass(frozen=True, slots=True)
class Legend:
    """A statement or a kind of dependence, and how it is drawn."""

    mark: str  # SVG
    text: str


@dataclass(frozen=True, slots=True)
class Space:
    """The iteration space as a drawing, and in words."""

    svg: str
    text: str
    statements: tuple[Legend, ...]
    dependences: tuple[Legend, ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class Result:
    """One block of the lock file, or what it would say of a search that only the database knows.

    ``here``: made on this machine (or one like it); ``locked``: it is in the lock file.
    """

    fingerprint: str
    sizes: str
    speedup: Ratio | None
    verification: Mapping[str, Any]
    block: Mapping[str, Any]
    here: bool
    fresh: bool  # made from the source as it is now
    locked: bool = True


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluation of a search: ``seconds`` is None where there is no time."""

    number: int
    offset: float
    outcome: str
    seconds: float | None
    best: float | None  # so far, of those before it and itself


@dataclass(frozen=True, slots=True)
class Rejected:
    """Configurations of a search that failed for one cause, with the first reason in words."""

    cause: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Search:
    """One recorded search. ``original``: seconds of the nest as written.

    ``importance``: what its parameters explain of the spread of its times (``tuning.importance``).
    """

    id: str
    fingerprint: str
    sizes: str
    target: str
    strategy: str
    budget: str
    seed: int
    stopped: str
    original: float | None
    best: float | None
    trials: tuple[Trial, ...]
    rejected: tuple[Rejected, ...]
    versions: Mapping[str, str]
    finished: bool
    importance: Importance


@dataclass(frozen=True, slots=True)
class Roof:
    """Where a nest stands under the roof of the machine.

    intensity  operations per byte between memory and caches, exact counts
    achieved   operations per second of the result, None where its time is not known
    before     the same of the original
    kind       "single" or "double": which peak counts
    """

    intensity: float
    achieved: float | None
    before: float | None
    kind: str


@dataclass(frozen=True, slots=True)
class Nest:
    name: str
    file: str
    line: int
    state: str
    target: str
    operators: str
    source: Text
    result: Text | None
    steps: tuple[Step, ...]
    space: Space | None
    sizes: Mapping[str, int]
    counts: Mapping[str, Any] | None
    results: tuple[Result, ...]
    searches: tuple[Search, ...]
    roof: Roof | None
    diagnostics: tuple[Mapping[str, Any], ...]
    refused_by: str = ""  # code

    @property
    def headline(self) -> Result | None:
        """The result that counts in the summary: of this machine before others, fresh before old."""
        timed = [r for r in self.results if r.speedup is not None]
        return min(timed, key=lambda r: (not r.here, not r.fresh), default=None)


@dataclass(frozen=True, slots=True)
class Refusals:
    code: str
    title: str
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    files: int
    states: Mapping[str, int]
    refusals: tuple[Refusals, ...]
    speedup: Ratio | None  # geometric mean of the nests that have one
    timed: int


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    version: str
    summary: Summary
    nests: tuple[Nest, ...]
    environment: tuple[tuple[str, str], ...]
    ceilings: Mapping[str, Any] | None = None
    board: Mapping[str, Any] | None = None
    notes: tuple[Mapping[str, Any], ...] = field(default=())
    t4: Mapping[str, Any] | None = None  # all searches that are shown, in Kernel Tuner's form

    def as_json(self) -> dict[str, Any]:
        """Plain values; drawings, markup and T4 are left out, as the same is there otherwise."""
        return {"schema_version": SCHEMA_VERSION, **finite(asdict(self, dict_factory=_without_markup))}


_MARKUP = ("svg", "mark", "mathml", "t4")


def _without_markup(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if name not in _MARKUP}


def finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have, and text that is valid Unicode."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, Mapping):
        return {readable(str(k)): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def readable(text: str) -> str:
    """Bytes of file names that are no UTF-8 as escapes: ``\\udcff`` becomes ``\\xff``."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def geometric_mean(ratios: Sequence[Ratio]) -> Ratio | None:
    """The mean with a 95 % interval from those of its parts (``mdh_lift.means``).

    >>> r = geometric_mean([Ratio(2, 1.9, 2.1), Ratio(8, 7.6, 8.4)])
    >>> round(r.median, 6), r.low < 4 < r.high
    (4.0, True)
    """
    found = means.geometric_mean((r.median, r.low, r.high) for r in ratios)
    return None if found is None else Ratio(*found)


def summary_of(files: int, nests: Iterable[Nest], titles: Mapping[str, str]) -> Summary:
    """``titles``: of diagnostics, by code."""
    nests = list(nests)
    states = {s: sum(n.state == s for n in nests) for s in STATES}
    codes: dict[str, int] = {}
    for n in nests:
        if n.refused_by:
            codes[n.refused_by] = codes.get(n.refused_by, 0) + 1
    refusals = tuple(
        Refusals(c, titles.get(c, ""), k)
        for c, k in sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    )
    ratios = [r.speedup for n in nests if (r := n.headline) is not None and r.speedup is not None]
    return Summary(
        files, {s: k for s, k in states.items() if k}, refusals, geometric_mean(ratios), len(ratios)
    )
