"""``mdh-lift db``: look at the tuning database, hand its records on, take others' over, tidy up.

    database -> tables, JSON, CSV, T4, a cache of Kernel Tuner;  exports and databases of others -> database

Nothing is compiled or run.  What removes anything prints what it would remove, and does it with ``-w``.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import functools
import math
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from frontend_c.file import read
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.source import SourceFile
from mdh_lift import recorded
from mdh_lift.config import ConfigurationError
from mdh_lift.files import is_python, read_source
from mdh_lift.findings import Finding
from mdh_lift.pipeline import Options, command_for, short_name
from mdh_lift.session import Session
from mdh_lift.splice import original
from mdh_lift.version import VERSION
from tuning import exports
from tuning import lock as locks
from tuning.measure import ratio_of
from tuning.records import RecordError, SearchRecord, to_json
from tuning.store import Store, StoreError

FORMATS = ("json", "csv", "t4", "kernel-tuner")
_UNITS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_MOST = 1 << 30  # bytes of a file to import


def parse_age(text: str) -> float:
    """Seconds of ``12h``, ``90d``, ``8w``.  Raises ``ValueError``."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([hdw])\s*", text)
    if found is None:
        raise ValueError(f"age {text!r}: expected for example 12h, 90d or 8w")
    return float(found[1]) * _UNITS[found[2]]


def path_of(session: Session, database: str | None) -> Path:
    """The database that is meant: ``--database``, or that of the configuration."""
    return Path(database) if database else session.options(".").database_path


def _telling(verb: Callable[..., int]) -> Callable[..., int]:
    """What is wrong with a database becomes a finding (MDH521) and exit status 2."""

    @functools.wraps(verb)
    def told(session: Session, database: str | None, *args: object, **kwargs: object) -> int:
        try:
            return verb(session, path_of(session, database), *args, **kwargs)
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from None
        except StoreError as error:
            session.findings.append(Finding(recorded.told(error).diagnostic))
        except Refusal as refusal:
            session.findings.append(Finding(refusal.diagnostic))
        return _finish(session, {})

    return told


def _finish(session: Session, content: Mapping[str, object]) -> int:
    """Results, and errors on standard error; no line about files that were looked at."""
    session.quiet = True
    return session.finish({**content, "diagnostics": [f.as_json() for f in session.findings]})


# --------------------------------------------------------------------------- look


@_telling
def show_list(session: Session, path: Path, nests: Sequence[str]) -> int:
    with Store(path, create=False) as store:
        rows = summaries(_chosen(store, nests))
    if session.for_people:
        session.result(_table(rows))
    return _finish(session, {"nests": rows})


def _chosen(store: Store, nests: Sequence[str]) -> list[SearchRecord]:
    """The searches of these nests, or of all; a usage error for a name that none has."""
    if not nests:
        return store.searches()
    found = []
    for nest in dict.fromkeys(recorded.text_name(n) for n in nests):
        own = store.searches(nest)
        if not own:
            known = sorted({r.nest for r in store.searches()})
            near = difflib.get_close_matches(nest, [*known, *map(short_name, known)], 1)
            hint = f"; did you mean `{near[0]}`?" if near else "; `mdh-lift db list` names all"
            raise click.UsageError(f"the database has no search of `{nest}`{hint}")
        found += own
    return list({r.token: r for r in found}.values())


def summaries(records: Sequence[SearchRecord]) -> list[dict[str, object]]:
    """One object per nest, machine class, size class: how often it was searched, and what came of it."""
    groups: dict[tuple[str, str, str], list[SearchRecord]] = {}
    for r in records:
        groups.setdefault((r.nest, r.fingerprint, r.size_class), []).append(r)
    rows: list[dict[str, object]] = []
    for (nest, fingerprint, size_class), own in sorted(groups.items()):
        searches = [r for r in own if r.is_search]
        won = [r for r in searches if r.winner]
        last = won[-1] if won else None
        ratio = ratio_of(last.pairs) if last is not None and last.pairs else None
        times = [s.seconds for r in own for s in r.steps if s.ok]
        rows.append(
            {
                "nest": nest,
                "fingerprint": fingerprint,
                "size_class": size_class,
                "target": own[-1].target,
                "searches": len(searches),
                "unfinished": sum(not r.finished for r in searches),
                "evaluations": sum(len(r.steps) for r in searches),
                "best_seconds": min(times, default=None),
                "speedup": None if ratio is None else [ratio.low, ratio.median, ratio.high],
                "record": last.id if last is not None else None,
            }
        )
    return rows


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    if not rows:
        return "no searches are recorded\n"
    lines = []
    for row in rows:
        numbers = row["speedup"]
        speed = f"{numbers[1]:.2f} x" if isinstance(numbers, list) else "-"
        best = row["best_seconds"]
        shown = _seconds(best) if isinstance(best, float) else "-"
        open_ones = f", {row['unfinished']} unfinished" if row["unfinished"] else ""
        searches = f"{row['searches']} search{'es' * (row['searches'] != 1)}"
        counts = f"{searches}{open_ones}, {row['evaluations']} evaluations"
        names = (str(row[n]) for n in ("nest", "fingerprint", "size_class"))
        lines.append((*names, shown, speed, counts))
    heading = ("nest", "machine", "sizes", "best", "speedup", "recorded")
    width = [max(len(line[k]) for line in (heading, *lines)) for k in range(6)]
    return "".join("  ".join(f"{v:<{w}}" for v, w in zip(line, width, strict=True)).rstrip() + "\n"
                   for line in (heading, *lines))  # fmt: skip


def _seconds(t: float) -> str:
    unit, factor = ("s", 1.0) if t >= 1 else ("ms", 1e3) if t >= 1e-3 else ("us", 1e6)
    return f"{t * factor:.3g} {unit}"


@_telling
def show(session: Session, path: Path, nests: Sequence[str]) -> int:
    with Store(path, create=False) as store:
        records = _chosen(store, nests)
    if session.for_people:
        session.result("\n".join(_described(r) for r in records))
    return _finish(session, {"searches": [to_json(r) for r in records]})


def _described(r: SearchRecord) -> str:
    begun = datetime.datetime.fromtimestamp(r.started, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    rows = [
        ("record", r.id or f"(unfinished) {r.token}"),
        ("begun", begun),
        ("machine", r.fingerprint),
        ("sizes", r.size_class),
        ("flags", r.flags),
        ("search", f"{r.strategy or 'unknown'}, budget {r.budget or 'unknown'}, seed {r.seed}"),
        ("ended", r.stopped or "killed, or it runs still"),
        ("outcomes", ", ".join(f"{n} {kind}" for kind, n in r.outcomes().items()) or "none"),
    ]
    if r.original:
        rows.append(("original", _seconds(r.original_seconds)))
    best = min((s.seconds for s in r.steps if s.ok), default=math.inf)
    if math.isfinite(best):
        rows.append(("best", _seconds(best)))
    if r.winner:
        rows.append(("winner", ", ".join(f"{k}={v}" for k, v in (r.winning_point or {}).items())))
        rows.append(("code", r.winner_text))
    if r.pairs:
        ratio = ratio_of(r.pairs)
        rows.append(("speedup", f"{ratio.median:.2f} x, {ratio.low:.2f} to {ratio.high:.2f}"))
    if r.verification:
        compared = f"{r.verification.get('cases', 0)} runs on {len(r.verification.get('sizes', ()))} sizes"
        rows.append(("verified", compared))
    rows.append(("versions", ", ".join(f"{k} {v}" for k, v in r.versions.items())))
    return f"{r.nest}\n" + "".join(f"  {label + ':':<10} {value}\n" for label, value in rows if value)


# --------------------------------------------------------------------------- hand on, take over


@_telling
def export(session: Session, path: Path, nests: Sequence[str], form: str, record: str | None) -> int:
    with Store(path, create=False) as store:
        records = [r for r in _chosen(store, nests) if record is None or record in (r.id, r.token)]
    if record is not None and not records:
        raise click.UsageError(f"the database has no record `{record}`; `mdh-lift db show` names them")
    if form == "kernel-tuner" and record is None:
        records = [r for r in records if r.is_search]
    session.output_format = "text"  # the export is the result, in the form it has
    if form == "kernel-tuner":
        session.result(_cache_of(records))
    else:
        write = {"json": exports.as_json, "csv": exports.as_csv, "t4": exports.t4}[form]
        session.result(write(records))
    return _finish(session, {})


def _cache_of(records: Sequence[SearchRecord]) -> str:
    if len(records) != 1:
        ids = ", ".join(r.id or r.token for r in records[:8])
        told = f"a cache of Kernel Tuner is of one search, not of {len(records)}"
        raise click.UsageError(told + (f"; `--record` chooses one of {ids}" if records else ""))
    try:
        return exports.kernel_tuner(records[0])
    except exports.ExportError as error:
        raise click.UsageError(str(error)) from None


@_telling
def import_file(session: Session, path: Path, files: Sequence[str]) -> int:
    new, known = 0, 0
    for name in files:
        found = _imported(session, name)
        if found is None:
            continue
        with Store(path) as store:
            added = store.merge(found)
        new, known = new + added, known + len(found) - added
    return _merged(session, new, known)


def _imported(session: Session, name: str) -> list[SearchRecord] | None:
    """The records of a file; None after its fault was noted."""
    try:
        with click.open_file(name, "rb") as stream:
            data = stream.read(_MOST + 1)
        if len(data) > _MOST:
            raise RecordError("larger than 1 GiB")
        return exports.from_text(data.decode("utf-8"))
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror or error}") from None
    except (RecordError, UnicodeDecodeError) as error:
        told = Diagnostic("MDH524", f"`{name}` holds no records of searches: {error}", name,
                          help="`mdh-lift db export --as json` writes such files")  # fmt: skip
        session.findings.append(Finding(told))
    return None


@_telling
def merge(session: Session, path: Path, others: Sequence[str]) -> int:
    new, known = 0, 0
    for other in others:
        if Path(other).resolve() == path.resolve():
            raise click.UsageError(f"{other} is the database itself")
        with _copy(Path(other)) as store:
            found = store.searches()
        with Store(path) as own:
            added = own.merge(found)
        new, known = new + added, known + len(found) - added
    return _merged(session, new, known)


@contextlib.contextmanager
def _copy(path: Path) -> Iterator[Store]:
    """A copy of another's database, which may be of an older version and is not ours to change."""
    if not path.is_file():
        raise StoreError(f"{path}: there is no such database")
    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as directory:
        made, place = Path(directory, path.name), f"{path.absolute().as_uri()}?mode=ro"
        try:
            with (
                contextlib.closing(sqlite3.connect(place, uri=True)) as source,
                contextlib.closing(sqlite3.connect(made)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error
        with Store(made, create=False) as store:
            yield store


def _merged(session: Session, new: int, known: int) -> int:
    if session.for_people:
        session.result(f"{new} new records, {known} known already\n")
    return _finish(session, {"new": new, "known": known})


# --------------------------------------------------------------------------- tidy up


@_telling
def prune(
    session: Session, path: Path, older_than: float | None, gone: bool, other_versions: bool, write: bool
) -> int:
    """Records by age, tool version, or nest; what the lock file refers to stays, unless its nest is gone."""
    if older_than is None and not gone and not other_versions:
        raise click.UsageError("say what to remove: `--older-than`, `--gone` or `--other-versions`")
    options = session.options(".")
    lock = recorded.lock_of(options)
    with Store(path, create=False) as store:
        records = store.searches()
        lost = _gone(options, {r.nest for r in records} | set(lock["nests"])) if gone else set()
        limit = time.time() - older_than if older_than is not None else -math.inf
        kept = _named_in(lock)
        chosen: dict[str, str] = {}
        for r in records:
            if r.nest in lost:
                chosen[r.token] = "the nest is gone"
            elif r.id not in kept and r.started < limit:
                chosen[r.token] = "its age"
            elif r.id not in kept and other_versions and r.tool_version != VERSION:
                chosen[r.token] = f"made by version {r.tool_version or 'unknown'}"
        if write and chosen:
            _remove(store, [r for r in records if r.token in chosen], records)
    entries = sorted(lost & set(lock["nests"]))
    if write and entries:
        locks.change(options.lock_path, lambda now: functools.reduce(locks.remove, entries, now))
    did = "removed" if write else "would remove"
    removed = [{"nest": r.nest, "record": r.id or r.token, "reason": chosen[r.token]}
               for r in records if r.token in chosen]  # fmt: skip
    if session.for_people:
        for row in removed:
            session.result(f"{did} {row['record']} of {row['nest']}: {row['reason']}\n")
        for name in entries:
            session.result(f"{did} {name} from {options.lock_path.name}: the nest is gone\n")
        more = "" if write or not (removed or entries) else "; -w removes them"
        session.result(f"{len(removed)} of {len(records)} records, {len(entries)} lock entries{more}\n")
    if not write and (removed or entries):
        session.statuses.append(1)
    return _finish(session, {"written": write, "records": removed, "lock_entries": entries})


def _named_in(lock: locks.Lock) -> set[str]:
    """Ids of records that the lock file refers to."""
    blocks = [b for machines in lock["nests"].values() for classes in machines.values()
              for b in classes.values()]  # fmt: skip
    return {str(b.get("record")) for b in blocks if b.get("record")}


def _gone(options: Options, names: set[str]) -> set[str]:
    """Those of the names ``path::function::label`` whose file is not there, or has no such nest."""
    by_path: dict[str, list[str]] = {}
    for name in names:
        path, _, rest = name.partition("::")
        if rest.count("::") == 1:  # names of version 1 of the database have no path
            by_path.setdefault(path, []).append(name)
    lost = set[str]()
    for path, own in by_path.items():
        there = _nests_of(options, os.path.normpath(options.root / path))
        lost |= {n for n in own if there is not None and short_name(n) not in there}
    return lost


def _nests_of(options: Options, path: str) -> set[str] | None:
    """``function::label`` of the nests of a file; None where it is there and cannot be read."""
    if not Path(path).exists():
        return set()
    if is_python(path):
        return None
    try:
        source = read_source(path)
        bare = SourceFile(path, original(source.data).data)
        result = read(bare, command_for(path, options), options.config.lift.accept)
    except Refusal:
        return None
    if any(d.severity == "error" for d in result.diagnostics):
        return None
    parts = [p for some in result.parts.values() for p in some]
    return {short_name(n.name) for n in (*result.nests, *result.refused, *parts)}


def _remove(store: Store, chosen: Sequence[SearchRecord], records: Sequence[SearchRecord]) -> None:
    """Searches, and the evaluations for searches that go on of which no other search tells."""
    shared = ("source_hash", "fingerprint", "size_class", "flags", "compiler", "seed")
    removed = {r.token for r in chosen}
    still = {tuple(getattr(r, n) for n in shared) for r in records if r.token not in removed}
    dropped = {tuple(getattr(r, n) for n in shared) for r in chosen} - still
    wanted = " AND ".join(f"{n} = ?" for n in shared)
    with store.changing() as connection:
        connection.executemany("DELETE FROM searches WHERE token = ?", [(t,) for t in removed])
        connection.executemany(f"DELETE FROM evaluations WHERE {wanted}", sorted(dropped, key=repr))  # noqa: S608


@_telling
def vacuum(session: Session, path: Path) -> int:
    with Store(path, create=False) as store:
        before = path.stat().st_size
        store.vacuum()
    after = path.stat().st_size
    if session.for_people:
        session.result(f"{before} bytes before, {after} bytes now\n")
    return _finish(session, {"bytes_before": before, "bytes_after": after})
