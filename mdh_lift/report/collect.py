"""From checked files, lock files, the database and a scoreboard to a ``Report``; nothing is run."""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lowering.machine import this_machine
from mdh_core.diagnostics import CODES, Diagnostic, Refusal
from mdh_core.expr import DOUBLE
from mdh_core.ir import HostLoop, MdhProgram, Sequential
from mdh_core.ir import Step as LiftedStep
from mdh_core.mathml import mathml
from mdh_core.show import c_style, statements, text
from mdh_core.source import SourceFile
from mdh_lift import counts, macros, verbs
from mdh_lift.config import ConfigurationError
from mdh_lift.emitted import emitted
from mdh_lift.files import is_python
from mdh_lift.findings import Finding
from mdh_lift.pipeline import FileReport, NestReport, short_name, source_hash, target_of
from mdh_lift.recorded import entry_named
from mdh_lift.report import limits, svg
from mdh_lift.report.data import (
    Legend,
    Nest,
    Ratio,
    Rejected,
    Report,
    Result,
    Roof,
    Search,
    Space,
    Step,
    Text,
    Trial,
    summary_of,
)
from mdh_lift.report.picture import Picture, picture
from mdh_lift.session import Session
from mdh_lift.version import VERSION
from tuning import ceilings as limits_of_machines
from tuning import lock as locks
from tuning.ceilings import Ceilings
from tuning.exports import t4_content
from tuning.fingerprint import description
from tuning.importance import importance
from tuning.records import SEARCH, SearchRecord
from tuning.runner import CUT_OFF, OK
from tuning.store import Store, StoreError
from tuning.toolchain import Toolchain

_MOST_LINES = 400  # of a result
_MOST_SEARCHES = 3  # of a nest


def collect(session: Session, paths: Sequence[str], scoreboard: str | None = None, title: str = "") -> Report:
    """Everything that is known of the nests; what cannot be read is a finding (MDH618)."""
    board = _board(scoreboard)
    known = limits.known(session)
    made: list[Nest] = []
    files = 0
    with _Kept(session) as kept:
        for target, report, nests in verbs.reports_of(session, paths, bar=True):
            files += 1
            for nest in nests:
                made_nest = session.attempt(
                    target.path,
                    lambda r=report, n=nest: _nest(session, kept, r, n, known),  # type: ignore[misc]
                )
                if made_nest is not None:
                    made.append(made_nest)
    if known is None:
        said = Diagnostic("MDH617", "no limits of this machine are known: `mdh-lift doctor --bench`")
        session.findings.append(Finding(said))
    own = {id(f) for r in session.reports for n in r.nests for f in n.findings}
    notes = tuple(f.as_json() for f in session.findings if id(f) not in own)
    titles = {code: row.title for code, row in CODES.items()}
    return Report(
        title or f"Loop nests of {', '.join(Path(p).name or Path.cwd().name for p in paths or '.')}",
        VERSION,
        summary_of(files, made, titles),
        tuple(made),
        _environment(known),
        None if known is None else known.as_json(),
        board,
        notes,
        t4_content(kept.shown) if kept.shown else None,
    )


def _board(path: str | None) -> Mapping[str, Any] | None:
    """The scoreboard of `port`, with rows for the nests.  Raises a usage error where it is none."""
    if path is None:
        return None
    try:
        content = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"{path}: not valid JSON ({error})") from None
    nests = content.get("nests") if isinstance(content, dict) else None
    if not isinstance(nests, list) or not all(isinstance(n, dict) and "name" in n for n in nests):
        raise click.UsageError(f"{path}: not a scoreboard of `mdh-lift port`")
    return dict(content)


class _Kept:
    """Lock files and databases of the directories that are looked at, each read once.

    ``shown``: the searches that the report has.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._locks: dict[Path, locks.Lock] = {}
        self._stores: dict[Path, Store | None] = {}
        self.shown: list[SearchRecord] = []

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._stores.values():
            if store is not None:
                store.close()

    def _missing(self, reason: str) -> None:
        self._session.findings.append(Finding(Diagnostic("MDH618", reason)))

    def lock(self, path: Path) -> locks.Lock:
        if path not in self._locks:
            try:
                self._locks[path] = locks.read(path)
            except locks.LockError as error:
                self._missing(f"{path}: {error}")
                self._locks[path] = locks.empty()
        return self._locks[path]

    def searches(self, path: Path, nest: str) -> list[SearchRecord]:
        if path not in self._stores:
            self._stores[path] = None
            if path.is_file():
                try:
                    self._stores[path] = Store(path, create=False)
                except StoreError as error:
                    self._missing(str(error))
        store = self._stores[path]
        try:
            return [] if store is None else store.searches(nest)
        except StoreError as error:
            self._missing(str(error))
            return []


# --------------------------------------------------------------------------- one nest


def _nest(
    session: Session, kept: _Kept, report: FileReport, nest: NestReport, known: Ceilings | None
) -> Nest:
    options = session.options(report.source.path)
    path = os.path.relpath(report.source.path, options.root)
    name = f"{path}::{short_name(nest.name)}".encode("utf-8", "backslashreplace").decode()
    locked = kept.lock(options.lock_path)["nests"].get(name, {})
    records = kept.searches(options.database_path, name)
    only_recorded = _recorded(name, records, locked)
    lifted = nest.lifted
    current = _hash(report, nest) if locked or only_recorded else ""
    results = (*_results(locked, current), *_results(only_recorded, current, locked=False))
    newest = _newest(records)
    kept.shown += newest
    searches = tuple(map(_search, newest))
    found = None if lifted is None else counts.usual_counts(lifted)
    sizes, counted = found or ({}, None)
    refused = next((f.diagnostic.code for f in nest.findings if f.diagnostic.severity == "error"), "")
    state = _state(nest, results)
    made = Nest(
        nest.name,
        report.source.path,
        nest.line,
        state,
        _target(nest),
        "; ".join(", ".join(map(str, p.hom.combine)) or "scalar" for p in lifted.programs) if lifted else "",
        _source(report, nest),
        _result(report, nest, results),
        tuple(_steps(lifted.program)) if lifted else (),
        None if lifted is None else _space(picture(lifted, report.bare.data), nest.name),
        sizes,
        None if counted is None else counted.as_json(),
        results,
        searches,
        None,
        tuple(f.as_json() for f in nest.findings),
        refused if nest.status == "refused" else "",
    )
    return _with_roof(made, nest, counted)


def _state(nest: NestReport, results: Sequence[Result]) -> str:
    if nest.splice_state in ("stale", "edited"):
        return "stale"
    if nest.splice_state:
        return "spliced"
    if nest.status != "refused" and any(r.fresh for r in results):
        return "tuned"
    return nest.status


def _target(nest: NestReport) -> str:
    try:
        return target_of(nest)
    except Refusal:
        return ""


def _hash(report: FileReport, nest: NestReport) -> str:
    if nest.lifted is None:
        return ""
    text = SourceFile(report.source.path, report.bare.data)
    return source_hash(text.data, nest.lifted.nest, macros.definitions(text, report.command))


def _plain(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _source(report: FileReport, nest: NestReport) -> Text:
    """Directive and nest as they stand in the file without regions."""
    bare = SourceFile(report.source.path, report.bare.data)
    if nest.lifted is None or not nest.lifted.nest.span:
        span = report.source.line_span(nest.line)
        return Text(_plain(report.source.data[span.start : span.end]), nest.line)
    own = nest.lifted.nest
    start = min(own.span.start, own.directive_span.start) if own.directive_span else own.span.start
    start = bare.data.rfind(b"\n", 0, start) + 1
    end = own.span.end
    line_end = bare.data.find(b"\n", end)
    if line_end >= 0 and not bare.data[end:line_end].strip(b" \t\r"):
        end = line_end
    return Text(_dedented(_plain(bare.data[start:end])), bare.line_col(start)[0])


def _dedented(text: str) -> str:
    return textwrap.dedent(text.expandtabs(4)).rstrip()


def _result(report: FileReport, nest: NestReport, results: Sequence[Result]) -> Text | None:
    """What is spliced, or what the chosen configuration gives; None where there is neither."""
    if nest.regions:
        texts = [_dedented(_plain(r.text)) for r in nest.regions]
        return _cut("\n\n".join(t.strip("\n") for t in texts), "spliced into the file")
    chosen = min((r for r in results if r.fresh), key=lambda r: not r.here, default=None)
    point = (chosen.block.get("configuration") or {}).get("point") if chosen is not None else None
    if not isinstance(point, dict) or is_python(report.source.path):
        return None
    try:
        origin = "lock file" if chosen is not None and chosen.locked else "database"
        return _cut(emitted(report, nest, point), f"generated from the {origin}")
    except (Refusal, ConfigurationError):
        return None


def _cut(text: str, origin: str) -> Text:
    lines = text.split("\n")
    return Text("\n".join(lines[:_MOST_LINES]), 1, origin, max(0, len(lines) - _MOST_LINES))


def _steps(steps: Sequence[LiftedStep], depth: int = 0) -> Iterator[Step]:
    for s in steps:
        match s:
            case MdhProgram():
                yield Step("md_hom", depth, text(s), mathml(s))
            case HostLoop(iterator=t, source_name=source, size=size, body=body):
                yield Step("host_loop", depth, f"for {source or t} in [0, {size}), in order")
                yield from _steps(body, depth + 1)
            case Sequential(body=statements_):
                style = c_style("x{}".format, "r{}".format)
                yield Step("sequential", depth, "\n".join(statements(statements_, style)))


def _space(drawn: Picture | None, name: str) -> Space | None:
    if drawn is None:
        return None
    statements_ = tuple(Legend(svg.mark(k), s.text) for k, s in enumerate(drawn.statements))
    kinds = sorted({(d.kind, d.combined) for d in drawn.dependences})
    shown = svg.drawn_arrows(drawn)
    legends = [
        Legend(
            svg.line(kind, bool(combined)), _KINDS[kind] + (f", combined by {combined}" if combined else "")
        )
        for kind, combined in kinds
    ]
    if len(shown) < len(drawn.dependences):
        number = f"{len(shown)} of {len(drawn.dependences)}"
        legends.append(Legend("", f"drawn: {number}, those into one iteration"))
    shape = svg.svg(drawn, f"Iteration space of {name}", f"words {name}".replace(" ", "-"))
    return Space(
        shape,
        drawn.text(),
        statements_,
        tuple(legends),
        drawn.cut,
    )


_KINDS = {
    "flow": "reads what was written",
    "anti": "overwrites what was read",
    "output": "overwrites what was written",
}


# --------------------------------------------------------------------------- lock file and database


def _recorded(name: str, records: Sequence[SearchRecord], locked: object) -> dict[str, dict[str, Any]]:
    """What the last searches found, of which the lock file says nothing, as it would say it.

    `port` and `mdh-lift FILE` without `-w` leave no other trace.
    """
    found: dict[str, dict[str, Any]] = {}
    for r in records:
        said = locked.get(r.fingerprint) if isinstance(locked, dict) else None
        if r.finished and r.is_search and r.winner and not (isinstance(said, dict) and r.size_class in said):
            block = locks.block_of(entry_named(name, r))
            if not r.pairs:  # compared, not measured
                del block["speedup"]
            found.setdefault(r.fingerprint, {})[r.size_class] = block
    return found


def _results(blocks: object, current: str, locked: bool = True) -> Iterator[Result]:
    if not isinstance(blocks, dict):
        return
    here = limits_of_machines.hardware(limits_of_machines.machine_key(("cc",), _threads()))
    for machine, classes in sorted(blocks.items()):
        for sizes, block in sorted(classes.items()) if isinstance(classes, dict) else ():
            if isinstance(block, dict):
                fresh = bool(current) and block.get("source_hash") == current
                yield Result(
                    machine, sizes, _ratio(block.get("speedup")), block.get("verification") or {}, block,
                    limits_of_machines.hardware(machine) == here, fresh, locked,
                )  # fmt: skip


def _ratio(value: object) -> Ratio | None:
    if not isinstance(value, dict):
        return None
    try:
        median, low, high = (float(value[k]) for k in ("median", "low", "high"))
        return Ratio(median, low, high, float(value.get("confidence", 0.95)))
    except (KeyError, TypeError, ValueError):
        return None


def _threads() -> int:
    return this_machine().cores


def _newest(records: Sequence[SearchRecord]) -> list[SearchRecord]:
    """The last search of each machine and size that tried anything, newest first."""
    last = {(r.fingerprint, r.size_class): r for r in records if r.steps and r.is_search}
    return sorted(last.values(), key=lambda r: -r.started)[:_MOST_SEARCHES]


def _search(record: SearchRecord) -> Search:
    trials: list[Trial] = []
    best: float | None = None
    for s in record.steps:
        if s.phase != SEARCH:
            continue
        seconds = s.seconds if s.ok else None
        if seconds is not None and (best is None or seconds < best):
            best = seconds
        trials.append(Trial(s.ordinal, round(s.offset, 3), s.outcome, seconds, best))
    causes: dict[str, list[str]] = {}
    for s in record.steps:
        if s.outcome not in (OK, CUT_OFF):
            causes.setdefault(s.outcome, []).append(s.reason)
    rejected = tuple(
        Rejected(cause, len(found), found[0][:200])
        for cause, found in sorted(causes.items(), key=lambda item: -len(item[1]))
    )
    slow = sum(s.outcome == CUT_OFF for s in record.steps)
    if slow:
        rejected += (Rejected(CUT_OFF, slow, "much slower than the best so far; not measured to the end"),)
    original = record.original_seconds
    return Search(
        record.id, record.fingerprint, record.size_class, record.target, record.strategy, record.budget,
        record.seed, record.stopped, None if math.isnan(original) else original, best, tuple(trials),
        rejected, dict(record.versions), record.finished, importance(record.steps),
    )  # fmt: skip


# --------------------------------------------------------------------------- roofline, environment


def _with_roof(made: Nest, nest: NestReport, counted: counts.Counts | None) -> Nest:
    if counted is None or counted.intensity is None or nest.lifted is None:
        return made
    types = {t for p in nest.lifted.programs for t in p.component_types}
    timed = next((s for s in made.searches if s.best and s.sizes == _class(made.sizes)), None)
    achieved = counted.flops / timed.best if timed is not None and timed.best else None
    before = counted.flops / timed.original if timed is not None and timed.original else None
    kind = "double" if DOUBLE in types else "single"
    return replace(made, roof=Roof(counted.intensity, achieved, before, kind))


def _class(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{n}={v}" for n, v in sorted(sizes.items())) or "fixed"


def _environment(known: Ceilings | None) -> tuple[tuple[str, str], ...]:
    facts = description(Toolchain(("cc",), ()), _threads())
    rows = [
        ("mdh-lift", VERSION),
        ("machine", f"{facts['microarchitecture']} ({facts['isa']}, {facts['system']})"),
        ("threads", f"{facts['used_threads']} of {facts['threads']}"),
        ("caches", ", ".join(map(str, facts["caches"]))),  # type: ignore[call-overload]
        ("memory", f"{facts['memory_gib']} GiB"),
        ("compiler", str(facts["compiler"])),
    ]
    return (*rows, *(known.rows() if known is not None else ()))
