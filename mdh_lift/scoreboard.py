"""What became of the nests of a tree: one row each, totals, and the comparison with an earlier scoreboard.

    results of nests -> Scoreboard -> text, JSON, Markdown

Sorted by name, rounded to three digits, without times of day, durations, machine paths or host names: two
runs with the same results give the same bytes.  docs/porting.md describes the JSON.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from mdh_core.diagnostics import CODES
from mdh_lift import means

SCHEMA_VERSION = 1
RESULTS = ("accepted", "not faster", "refused", "failed", "left out")
_OF_SPEED = ("MDH603", "MDH604")  # a row's own figures say it


class ScoreboardError(Exception):
    """A file that is no scoreboard; the message says why."""


class Interval(msgspec.Struct, frozen=True):
    """A median with its interval; seconds, or a ratio."""

    median: float
    low: float
    high: float

    @classmethod
    def rounded(cls, median: float, low: float, high: float) -> Interval | None:
        """To three digits; None where a number is missing."""
        if not all(map(math.isfinite, (median, low, high))):
            return None
        return cls(*(float(f"{v:.3g}") for v in (median, low, high)))


class Entry(msgspec.Struct, frozen=True):
    """One nest.

    name       path from the tree::function::label
    status     of lifting: lifted, partial or refused
    result     accepted: verified and faster; not faster: verified, without a speedup; refused: not lifted, or
               must not be replaced; failed: could not be compiled, run, or verified; left out: not tried
    code       of the diagnostic that tells why it is not accepted; empty for accepted ones
    verified   runs that agreed with the original; 0: none were made
    before, after   seconds of the nest by itself, original and ported, at ``sizes``
    """

    name: str
    line: int = 0
    status: str = "refused"
    result: str = "refused"
    code: str = ""
    reason: str = ""
    operators: str = ""
    target: str = ""
    sizes: str = ""
    verified: int = 0
    before: Interval | None = None
    after: Interval | None = None
    speedup: Interval | None = None

    @property
    def file(self) -> str:
        return self.name.rsplit("::", 2)[0]


class Program(msgspec.Struct, frozen=True):
    """A program of the suite as a whole: seconds of its run command, original and ported."""

    name: str
    result: str  # "same output", "different output", "failed"
    reason: str = ""
    before: Interval | None = None
    after: Interval | None = None
    speedup: Interval | None = None


class File(msgspec.Struct, frozen=True):
    """A file without nests, or one that could not be read or was given up: ``code``, ``reason`` say why."""

    name: str
    code: str = ""
    reason: str = ""


class Scoreboard(msgspec.Struct, frozen=True):
    nests: list[Entry] = msgspec.field(default_factory=list)
    files: list[File] = msgspec.field(default_factory=list)
    programs: list[Program] = msgspec.field(default_factory=list)
    number_of_files: int = 0

    def in_order(self) -> Scoreboard:
        return Scoreboard(
            sorted(self.nests, key=lambda e: _key(e.name)),
            sorted(self.files, key=lambda f: f.name),
            sorted(self.programs, key=lambda p: p.name),
            self.number_of_files,
        )


def _key(name: str) -> tuple[str, str, tuple[int, str]]:
    """Ordinals of nests by their value."""
    path, function, label = [*name.rsplit("::", 2), "", ""][:3]
    return path, function, (int(label), "") if label.isdigit() else (-1, label)


# --------------------------------------------------------------------------- totals


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts by result and code, and the geometric mean of the speedups of accepted nests.

    The interval of the mean follows from those of the nests (``mdh_lift.means``).
    """

    files: int
    nests: int
    results: Mapping[str, int]
    partial: int
    codes: Mapping[str, int]
    verified: int
    mean: Interval | None
    programs: Mapping[str, int] = field(default_factory=dict)
    program_mean: Interval | None = None


def totals(board: Scoreboard) -> Totals:
    results = Counter(e.result for e in board.nests)
    codes = Counter(e.code for e in board.nests if e.code)
    codes.update(f.code for f in board.files if f.code)
    return Totals(
        board.number_of_files,
        len(board.nests),
        {r: results[r] for r in RESULTS if results[r]},
        sum(e.status == "partial" and e.result == "accepted" for e in board.nests),
        dict(sorted(codes.items())),
        sum(e.verified > 0 for e in board.nests),
        geometric_mean([e.speedup for e in board.nests if e.result == "accepted" and e.speedup]),
        dict(sorted(Counter(p.result for p in board.programs).items())),
        geometric_mean([p.speedup for p in board.programs if p.result == "same output" and p.speedup]),
    )


def geometric_mean(ratios: Sequence[Interval]) -> Interval | None:
    """
    >>> geometric_mean([Interval(2, 2, 2), Interval(8, 8, 8)])
    Interval(median=4.0, low=4.0, high=4.0)
    """
    found = means.geometric_mean((r.median, r.low, r.high) for r in ratios)
    return None if found is None else Interval.rounded(*found)


# --------------------------------------------------------------------------- JSON


def to_json(board: Scoreboard) -> dict[str, Any]:
    """The published shape (``schema_version`` 1)."""
    content: dict[str, Any] = msgspec.to_builtins(board.in_order())
    summary = msgspec.to_builtins(asdict(totals(board)))
    return {"schema_version": SCHEMA_VERSION, "kind": "scoreboard", **content, "totals": summary}


def render_json(board: Scoreboard) -> str:
    return json.dumps(to_json(board), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def read(path: Path) -> Scoreboard:
    """Raises ``ScoreboardError``."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ScoreboardError(f"{path}: {error}") from None
    if not isinstance(content, dict) or content.get("kind") != "scoreboard":
        raise ScoreboardError(f"{path}: not a scoreboard of mdh-lift port")
    if content.get("schema_version") != SCHEMA_VERSION:
        raise ScoreboardError(f"{path}: schema version {content.get('schema_version')!r} is not known here")
    try:
        return msgspec.convert(content, Scoreboard)
    except msgspec.ValidationError as error:
        raise ScoreboardError(f"{path}: {error}") from None


# --------------------------------------------------------------------------- comparison


def worse(before: Scoreboard, now: Scoreboard) -> Iterator[tuple[str, int, str]]:
    """Name, line and reason of every nest or program that was better before, unless it was left out now."""
    known = {e.name: e for e in now.nests}
    for old in before.nests:
        new = known.get(old.name)
        if old.result not in ("accepted", "not faster") or (new is not None and new.result == "left out"):
            continue
        if new is None:
            yield old.name, 0, f"it was {old.result} and is not found any more"
        elif new.result != old.result and RESULTS.index(new.result) > RESULTS.index(old.result):
            why = f": {new.code} {new.reason}" if new.code else ""
            yield old.name, new.line, f"it was {old.result} and is {new.result}{why}"
        elif old.result == "accepted" and _below(new.speedup, old.speedup):
            yield old.name, new.line, f"its speedup was {_ratio(old.speedup)} and is {_ratio(new.speedup)}"
    programs = {p.name: p for p in now.programs}
    for was in before.programs:
        is_ = programs.get(was.name)
        if was.result != "same output" or is_ is None:
            continue
        if is_.result != was.result:
            yield was.name, 0, f"it had the same output and has {is_.result}: {is_.reason}"
        elif _below(is_.speedup, was.speedup):
            yield was.name, 0, f"its speedup was {_ratio(was.speedup)} and is {_ratio(is_.speedup)}"


def _below(new: Interval | None, old: Interval | None) -> bool:
    """Does the interval lie below the former one?"""
    return new is not None and old is not None and new.high < old.low


# --------------------------------------------------------------------------- for people


_HEAD = ("nest", "operators", "result", "verified", "before", "after", "speedup")


def _cells(e: Entry) -> tuple[str, ...]:
    result = f"{e.result}, partly" if e.status == "partial" and e.result == "accepted" else e.result
    result += f" {e.code}" if e.code else ""
    verified = f"{e.verified} runs" if e.verified else "-"
    return (
        e.name, e.operators or "-", result, verified, _seconds(e.before), _seconds(e.after), _ratio(e.speedup)
    )  # fmt: skip


def _seconds(i: Interval | None) -> str:
    if i is None:
        return "-"
    unit, scale = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if i.median >= s), ("µs", 1e-6))
    return f"{_three(i.median / scale)} {unit} [{_three(i.low / scale)}, {_three(i.high / scale)}]"


def _ratio(i: Interval | None) -> str:
    return "-" if i is None else f"{_three(i.median)} x [{_three(i.low)}, {_three(i.high)}]"


def _three(v: float) -> str:
    """
    >>> _three(1.0), _three(12.34), _three(1234.0)
    ('1.00', '12.3', '1230')
    """
    v = float(f"{v:.3g}")
    digits = 2 - math.floor(math.log10(abs(v))) if v else 2
    return f"{v:.{max(0, digits)}f}"


def _sections(board: Scoreboard) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Title and rows, the first of which is the head, of all tables that hold something."""
    board = board.in_order()
    found: list[tuple[str, list[tuple[str, ...]]]] = []
    if board.nests:
        found.append(("Nests", [_HEAD, *map(_cells, board.nests)]))
    if board.programs:
        head = ("program", "result", "before", "after", "speedup")
        rows = [
            (p.name, p.result, _seconds(p.before), _seconds(p.after), _ratio(p.speedup))
            for p in board.programs
        ]
        found.append(("Whole programs", [head, *rows]))
    reasons = [(e.name, e.code, e.reason) for e in board.nests if e.code not in ("", *_OF_SPEED)]
    reasons += [(f.name, f.code, f.reason) for f in board.files if f.code]
    reasons += [(p.name, "", p.reason) for p in board.programs if p.reason]
    if reasons:
        found.append(("Why not", [("where", "code", "reason"), *reasons]))
    return found


def _ending(board: Scoreboard) -> list[str]:
    t = totals(board)
    counts = [f"{n} {r}" for r, n in t.results.items()]
    if t.partial:
        counts[0] += f" ({t.partial} of them partly)"
    out = [f"{t.files} files, {t.nests} nests: {', '.join(counts) or 'none'}; {t.verified} verified"]
    if t.codes:
        titles = {code: f" ({CODES[code].title})" if code in CODES else "" for code in t.codes}
        out.append("not accepted: " + ", ".join(f"{n} {code}{titles[code]}" for code, n in t.codes.items()))
    if t.mean is not None:
        out.append(f"geometric mean of the speedups of accepted nests: {_ratio(t.mean)}")
    if t.programs:
        out.append("whole programs: " + ", ".join(f"{n} {r}" for r, n in t.programs.items()))
    if t.program_mean is not None:
        out.append(f"geometric mean of the speedups of whole programs: {_ratio(t.program_mean)}")
    return out


def render_text(board: Scoreboard) -> str:
    out: list[str] = []
    for title, rows in _sections(board):
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]) - 1)]
        out.append(title)
        for row in rows:
            left = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
            out.append("  " + "  ".join([*left, row[-1]]).rstrip())
        out.append("")
    return "\n".join([*out, *_ending(board)]) + "\n"


def render_markdown(board: Scoreboard) -> str:
    out = ["# Scoreboard", ""]
    out += [f"{line}  " for line in _ending(board)]
    for title, rows in _sections(board):
        out += ["", f"## {title}", ""]
        out.append("| " + " | ".join(rows[0]) + " |")
        out.append("|" + " --- |" * len(rows[0]))
        out += ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows[1:]]
    return "\n".join(out) + "\n"


def _escaped(cell: str) -> str:
    for sign in "\\|*_`<":
        cell = cell.replace(sign, "\\" + sign)
    return " ".join(cell.split())


def rendered(board: Scoreboard, name: str) -> str:
    """By the suffix of a file's name: JSON, Markdown, or text."""
    suffix = Path(name).suffix
    if suffix == ".json":
        return render_json(board)
    return render_markdown(board) if suffix in (".md", ".markdown") else render_text(board)
