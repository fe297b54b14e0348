"""The verbs ``scan`` and ``annotate``: nests of a tree, with directives or without.

    files -> nests with a directive, loops without -> rows, by work times liftability -> table or JSON

Static: nothing but the preprocessor runs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import click

from lifter.lift import LiftedNest
from mdh_core.source import SourceFile
from mdh_lift import pipeline, verbs
from mdh_lift.annotate import Annotated, annotated, could_have
from mdh_lift.estimate import Estimate, estimated, estimated_by_look
from mdh_lift.files import is_python, read_source
from mdh_lift.findings import Finding
from mdh_lift.pipeline import NestReport
from mdh_lift.session import Session, Target
from mdh_lift.unannotated import Candidate, unannotated

LIFTABILITY = {"lifted": 1.0, "partial": 0.5, "refused": 0.0}
_OTHERS = (".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".cu", ".cuh", ".cl", ".f", ".f90", ".F90", ".for")


@dataclass(frozen=True, slots=True)
class Row:
    """One nest: where it is, what it computes, whether it lifts.

    operations  estimated, all iterations together; None where the nest could not be read
    operators   of the programs that it becomes, as ``(cc, pw(+))``
    rank        operations times liftability
    """

    name: str
    file: str
    line: int
    function: str
    loops: int
    annotated: bool
    status: str
    operations: float | None
    assumed: tuple[str, ...]
    operators: str
    code: str
    reason: str

    @property
    def rank(self) -> float:
        return (self.operations or 0.0) * LIFTABILITY[self.status]

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"rank": self.rank}


@dataclass
class Totals:
    """What was looked at, and what was not."""

    files: int = 0
    unread: int = 0
    functions: int = 0
    loops: int = 0
    lines: int = 0
    others: int = 0  # files of other languages
    lines_of_others: int = 0
    codes: Counter[str] = field(default_factory=Counter)


def scan(session: Session, paths: Sequence[str], size: int, most: int | None) -> int:
    """Print the table; exit status 0 unless a file could not be read."""
    rows: list[Row] = []
    totals = Totals()
    for target in verbs.followed(session, list(session.targets(paths)), lambda t: t.path):
        found = session.attempt(target.path, partial(_rows, session, target.path, size, totals))
        if found is None:
            totals.unread += 1
            continue
        rows += [row for row in found if target.selects(pipeline.short_name(row.name))]
    for path in paths or ["."]:
        _count_others(path, totals)
    rows.sort(key=lambda r: (-r.rank, -(r.operations or 0.0), r.file, r.line))
    totals.codes = Counter(r.code for r in rows if r.code)
    shown = rows if most is None else rows[:most]
    session.result(_table(shown, size))
    session.ending = _footer(rows, totals, size)
    content: dict[str, object] = {"nests": [r.as_json() for r in shown], "assumed_size": size}
    content["summary"] = _summary(rows, totals)
    content["diagnostics"] = [f.as_json() for f in session.findings]
    return session.finish(content)


def _rows(session: Session, path: str, size: int, totals: Totals) -> list[Row]:
    options = session.options(path)
    source = read_source(path)
    found = None if is_python(path) else unannotated(source, options)
    if found is not None and any(f.diagnostic.severity == "error" for f in found.findings):
        session.findings += session.kept(found.findings)
        totals.unread += 1
        return []
    rows: list[Row] = []
    if found is None or found.directives or b"mdh" in source.data:  # else there is nothing to check
        report = pipeline.check_source(source, options)
        session.findings += session.kept([f for f in report.findings if f.diagnostic.code != "MDH007"])
        rows = [_row_of_nest(path, nest, size) for nest in report.nests]
        totals.loops += len(report.nests)
    totals.files += 1
    totals.lines += _lines(source.data)
    if found is not None:
        totals.functions += len(found.functions)
        totals.loops += found.loops
        rows += [_row(path, c, size) for c in found.candidates]
    return rows


def _row_of_nest(path: str, nest: NestReport, size: int) -> Row:
    work = estimated(nest.lifted.nest, size) if nest.lifted is not None else None
    first = next((f for f in nest.findings if f.diagnostic.severity == "error"), None)
    first = first or next((f for f in nest.findings if f.diagnostic.code == "MDH414"), None)
    function = nest.name.rsplit("::", 2)[1]
    return _made(nest.name, path, nest.line, function, 0, True, nest.status, nest.lifted, work, first)


def _row(path: str, c: Candidate, size: int) -> Row:
    work = estimated(c.nest, size) if c.nest is not None else estimated_by_look(c.depth, c.operators, size)
    why = c.reason
    return _made(c.name, path, c.line, c.function, c.depth, False, c.status, c.lifted, work, why)


def _made(
    name: str, path: str, line: int, function: str, loops: int, has_directive: bool, status: str,
    lifted: LiftedNest | None, work: Estimate | None, why: Finding | None,
) -> Row:  # fmt: skip
    operators = operators_of(lifted) if lifted is not None and status != "refused" else ""
    deep = loops or (0 if lifted is None else _depth(lifted))
    code, reason = ("", "") if why is None else (why.diagnostic.code, why.diagnostic.message)
    operations, assumed = (None, ()) if work is None else (work.operations, work.assumed)
    return Row(
        name, path, line, function, deep, has_directive, status, operations, assumed, operators, code, reason
    )


def operators_of(lifted: LiftedNest) -> str:
    """Combine operators of the programs of a nest, each kind once: ``(cc, pw(+)), (cc)``."""
    found = (f"({', '.join(map(str, p.hom.combine))})" for p in lifted.programs)
    return ", ".join(dict.fromkeys(found))


def _depth(lifted: LiftedNest) -> int:
    def deep(body: Sequence[object]) -> int:
        own = [deep(s.body) + 1 for s in body if hasattr(s, "iterator") and hasattr(s, "body")]
        return max(own, default=0)

    return deep(lifted.nest.body)


# --------------------------------------------------------------------------- for people


def _table(rows: Sequence[Row], size: int) -> str:
    """Aligned columns; a line per nest, the most worthwhile first."""
    if not rows:
        return ""
    cells = [("operations", "loops", "", "where", "function", "operators, or why not")]
    for r in rows:
        what = r.operators if r.status != "refused" else ""
        what = f"{what} partial" if r.status == "partial" else what
        told = f"{r.code} {r.reason}" if r.code else ""
        mark = "#" if r.annotated else ""
        where = f"{r.file}:{r.line}"
        cells.append(
            (amount(r), str(r.loops or "?"), mark, where, r.function, "  ".join(filter(None, (what, told))))
        )
    widths = [max(len(row[k]) for row in cells) for k in range(5)]
    lines = []
    for row in cells:
        left = [f"{row[0]:>{widths[0]}}", f"{row[1]:>{widths[1]}}"]
        left += [f"{row[k]:<{widths[k]}}" for k in (2, 3, 4)]
        lines.append("  ".join([*left, row[5]]).rstrip())
    return "\n".join(lines) + "\n"


def amount(row: Row) -> str:
    """``2.0e9``, with ``~`` where sizes were assumed; ``?`` where nothing is known."""
    if row.operations is None:
        return "?"
    mantissa, _, exponent = f"{row.operations:.1e}".partition("e")
    return f"{'~' if row.assumed else ''}{mantissa}e{int(exponent)}"


def _summary(rows: Sequence[Row], totals: Totals) -> dict[str, object]:
    counts = Counter(r.status for r in rows)
    return {
        "files": totals.files,
        "unread_files": totals.unread,
        "functions": totals.functions,
        "loops": totals.loops,
        "nests": len(rows),
        "with_directive": sum(r.annotated for r in rows),
        **{status: counts[status] for status in LIFTABILITY},
        "codes": dict(sorted(totals.codes.items())),
        "lines": totals.lines,
        "other_files": totals.others,
        "other_lines": totals.lines_of_others,
    }


def _footer(rows: Sequence[Row], totals: Totals, size: int) -> str:
    counts = Counter(r.status for r in rows)
    lift, partly, do_not = (counts[status] for status in LIFTABILITY)
    t = totals
    out = [
        f"{t.files} files, {t.functions} functions, {t.loops} outermost loops, {t.lines} lines of code",
        f"{len(rows)} nests: {lift} lift, {partly} partly, {do_not} do not; "
        f"{sum(r.annotated for r in rows)} have a directive (#)",
    ]
    if t.codes:
        out.append("why not: " + ", ".join(f"{n} {code}" for code, n in t.codes.most_common()))
    if t.unread or t.others:
        others = f"{t.others} headers and files of other languages ({t.lines_of_others} lines)"
        out.append(f"not looked at: {t.unread} files that cannot be read or preprocessed, {others}")
    out.append(f"~ sizes that are neither constants nor stated count as {size}")
    return "\n".join(out)


def _lines(data: bytes) -> int:
    """Lines that hold something."""
    return sum(1 for line in data.split(b"\n") if line.strip())


def _count_others(path: str, totals: Totals) -> None:
    """Headers and files of other languages below a directory, which are not looked at."""
    if not Path(path).is_dir():
        return
    for root, directories, names in os.walk(path):
        directories[:] = [d for d in directories if not d.startswith(".")]
        for name in names:
            if name.endswith(_OTHERS):
                totals.others += 1
                try:
                    totals.lines_of_others += _lines(Path(root, name).read_bytes())
                except OSError:
                    continue


# --------------------------------------------------------------------------- annotate


def annotate(session: Session, paths: Sequence[str], write: bool, least: float) -> int:
    """Put directives before the nests of files that lift: print the diff, or write it."""
    taken = 0
    for target in verbs.followed(session, list(session.targets(paths)), lambda t: t.path):
        if is_python(target.path):
            if target.named:
                raise click.UsageError(f"{target.path}: directives are inserted into C files only")
            continue
        made = session.attempt(target.path, partial(_annotated, session, target, least))
        if made is None:
            continue
        session.findings += made.change.findings
        source = SourceFile(target.path, made.change.old or b"")
        session.findings += [Finding(d, source) for _, d in made.left_out]
        if made.taken:
            taken += len(made.taken)
            if not session.for_people:
                session.findings += [could_have(source, c) for c in made.taken]
            verbs.apply(session, made.change, write)
    session.noted["directives"] += taken
    return session.finish({"nests": [], "diagnostics": [f.as_json() for f in session.findings]})


def _annotated(session: Session, target: Target, least: float) -> Annotated:
    options = session.options(target.path)
    source = read_source(target.path)
    found = unannotated(source, options)
    meant = tuple(c for c in found.candidates if target.selects(pipeline.short_name(c.name)))
    return annotated(source, options, least, replace(found, candidates=meant))
