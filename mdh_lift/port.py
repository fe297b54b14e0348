"""The verb ``port``: a whole tree, one file per process, resumable, with a scoreboard at the end.

    files -> look (static) -> nests by work -> make: tune, verify, measure -> changes -> scoreboard

The parent alone writes: journal, lock file, sources.  A nest that is in the journal is not made again; a file
is recorded before it is written, so that a run that was killed in between knows what it did.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_lift import config as configuration
from mdh_lift import journal, pipeline, scoreboard, verbs
from mdh_lift.compile_command import DatabaseError
from mdh_lift.files import Change, is_python, write_atomic
from mdh_lift.findings import Finding
from mdh_lift.pipeline import short_name
from mdh_lift.port_journal import BusyError, Journal, records_of
from mdh_lift.port_worker import Job, change_of, data_of, diagnostic_of, digest, look, make
from mdh_lift.scoreboard import Entry, File, Program, Scoreboard, ScoreboardError
from mdh_lift.session import Session
from mdh_lift.version import VERSION
from mdh_lift.workers import Ended, Message
from mdh_lift.workers import run as run_jobs
from tuning import lock as locks
from tuning.measure import Ratio

_OF_ENTRY = tuple(f.name for f in msgspec.structs.fields(Entry))


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of the verb."""

    annotate: bool = False
    write: bool = False
    force: bool = False
    select: tuple[str, ...] = ()
    max_nests: int | None = None
    time_limit: float = 0.0
    resume: bool = True
    summary: tuple[str, ...] = ()
    fail_if_worse: str | None = None
    progress: str = "auto"
    suite: bool = True
    dry_run: bool = False
    search: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _FileState:
    """What is known of a file; names of nests are those of the scoreboard."""

    path: str
    name: str  # from the tree
    options: pipeline.Options
    old: bytes = b""
    data: bytes = b""
    nests: dict[str, Message] = field(default_factory=dict)  # by name as the worker calls it
    chosen: set[str] = field(default_factory=set)
    code: str = ""
    reason: str = ""
    done: bool = False  # in an earlier run, written and unchanged since
    settings: str = ""  # hash of what its results depend on beside its text
    after: dict[str, bytes | None] = field(
        default_factory=dict
    )  # files by path, as they are with the results


def port(session: Session, paths: Sequence[str], wishes: Wishes) -> int:
    former = _former(wishes.fail_if_worse)
    if wishes.dry_run:
        return _planned(session, paths, wishes)
    if wishes.write and not verbs.finish_edits(session, paths):
        return session.finish()
    files = _files(session, paths, wishes)
    state = _journal_path(session, paths)
    settings = _machine()
    try:
        journal = Journal(state, settings, wishes.resume)
    except BusyError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"cannot write {state}: {error.strerror}") from None
    try:
        run = _Run(session, wishes, files, journal.records, journal)
        run.all()
        programs = _suite(session, paths, run, wishes)
    finally:
        journal.close()
    return _finish(session, wishes, run, former, programs)


def _planned(session: Session, paths: Sequence[str], wishes: Wishes) -> int:
    """``--dry-run``: read and lift, say which nests would be tried, in which order; run and write nothing."""
    if wishes.write:
        raise click.UsageError("`--dry-run` changes nothing: it goes without `-w`")
    files = _files(session, paths, wishes)
    before = records_of(_journal_path(session, paths), _machine()) if wishes.resume else []
    run = _Run(session, wishes, files, before)
    run.choose()
    rows = [
        (n["work"], {
            "name": f"{f.name}::{name}",
            "line": n["line"],
            "status": n["status"],
            "operators": n["operators"],
            "work": n["work"],
            "known": n.get("kind") == "nest",
        })
        for f in files for name in f.chosen for n in [f.nests[name]]
    ]  # fmt: skip
    rows.sort(key=lambda row: (-row[0], row[1]["name"]))
    refused = [n["code"] for f in files for n in f.nests.values() if n["result"] == "refused"]
    session.findings += [Finding(Diagnostic(f.code, f.reason, f.path)) for f in files if f.code]
    if session.output_format == "json":
        return session.finish({"nests": [row for _, row in rows], "refused": len(refused)})
    if session.for_people:
        width = max((len(str(row["name"])) for _, row in rows), default=0)
        for k, (work, row) in enumerate(rows, 1):
            told = "known from an earlier run" if row["known"] else "would be tried"
            shown = f"{k:>4}  {row['name']:<{width}}  {work:8.1e} operations  {row['operators']}"
            session.result(f"{shown.rstrip()}  ({told})\n")
    done = sum(f.done for f in files)
    new = sum(not row["known"] for _, row in rows)
    session.ending = f"{new} nests would be tried, {len(refused)} refused"
    session.ending += f", {done} files done before" if done else ""
    return session.finish()


def port_with(session: Session, arguments: Mapping[str, Any]) -> int:
    """The verb with the options as the command line gives them."""
    search = {name: arguments[name] for name in ("budget", "strategy", "target", "replay")}
    own = {f.name: arguments[f.name] for f in fields(Wishes) if f.name in arguments}
    return port(session, arguments["paths"], Wishes(**own, search=search))


def _former(name: str | None) -> Scoreboard | None:
    if name is None:
        return None
    try:
        return scoreboard.read(Path(name))
    except ScoreboardError as error:
        raise click.UsageError(str(error)) from None


def _files(session: Session, paths: Sequence[str], wishes: Wishes) -> list[_FileState]:
    roots = [Path(p) if Path(p).is_dir() else Path(p).parent for p in paths or ["."]]
    root = Path(os.path.commonpath([r.resolve() for r in roots]))
    at_once = _at_once(session)
    found = []
    for target in session.targets(paths):
        if is_python(target.path):
            continue
        name = Path(os.path.relpath(Path(target.path).resolve(), root)).as_posix()
        if wishes.select and not any(_selects(p, name) for p in wishes.select):
            continue
        try:
            options = session.options(target.path, force=wishes.force, resume=wishes.resume, **wishes.search)
        except (configuration.ConfigurationError, OSError) as error:
            raise click.UsageError(str(error)) from None
        cores = max(1, len(os.sched_getaffinity(0)) // at_once)
        tune = msgspec.structs.replace(options.config.tune, jobs=cores)
        options = replace(options, config=msgspec.structs.replace(options.config, tune=tune))
        state = _FileState(target.path, name, options)
        try:
            state.settings = _settings(state, session, wishes)
        except DatabaseError as error:
            raise click.UsageError(str(error)) from None
        found.append(state)
        session.files.append(target.path)
    if not found:
        raise click.UsageError("no C files that `--select` means" if wishes.select else "no C files")
    return found


def _selects(pattern: str, file: str) -> bool:
    """Does a pattern mean a file, or nests of it (``src/*.c::main``)?"""
    path = pattern.partition("::")[0]
    return fnmatch(file, path) or fnmatch(file, f"*/{path}") or fnmatch(file, f"{path.rstrip('/')}/*")


def _at_once(session: Session) -> int:
    return session.jobs or len(os.sched_getaffinity(0))


def _journal_path(session: Session, paths: Sequence[str]) -> Path:
    """In ``.mdh-lift`` beside the lock file, one per tree."""
    first = (paths or ["."])[0]
    root = configuration.root(first, session.config_file_of(first))
    what = sorted(os.path.relpath(Path(p).resolve(), root.resolve()) for p in paths or ["."])
    return root / ".mdh-lift" / f"port-{digest(json.dumps(what).encode())[:8]}.jsonl"


def _machine() -> str:
    """Hash of what all results depend on."""
    known = (VERSION, platform.machine(), platform.processor(), len(os.sched_getaffinity(0)))
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _settings(f: _FileState, session: Session, wishes: Wishes) -> str:
    """Hash of what results of a file depend on beside its text: compile command and options."""
    tune = msgspec.to_builtins(f.options.config.tune) | {"jobs": 0}
    known = (tune, repr(pipeline.command_for(f.path, f.options)), session.accept, wishes.force)
    return hashlib.sha256(repr(known).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _text(f: _FileState) -> str:
    """Under which results of a file are kept."""
    return f"{digest(f.data)}-{f.settings}"


# --------------------------------------------------------------------------- the run


@dataclass
class _Run:
    session: Session
    wishes: Wishes
    files: list[_FileState]
    before: Sequence[Message]  # records of the journal
    journal: Journal | None = None  # what comes is added here
    results: dict[tuple[str, str], dict[str, Message]] = field(
        default_factory=dict
    )  # (file, text) -> by nest
    written: dict[tuple[str, str], Message] = field(default_factory=dict)  # (file, new text)
    left: dict[tuple[str, str], Diagnostic] = field(default_factory=dict)  # (file, nest) that was not written
    reused: int = 0
    total: int = 0
    told: int = 0

    def all(self) -> None:
        self.choose()
        self._make()

    def choose(self) -> None:
        """Read, lift and rank; nothing of the tree is run."""
        for record in self.before:
            if record["kind"] == "nest":
                self.results.setdefault((record["file"], record["text"]), {})[record["name"]] = record
            elif record["kind"] == "writing":
                self.written[(record["file"], record["new"])] = record
        self._look()
        self._choose()

    def _look(self) -> None:
        by_name = {f.name: f for f in self.files}
        jobs = []
        for f in self.files:
            if not self._was_written(f):
                jobs.append(Job(f.path, f.options, self.wishes.annotate))
        of = {f.path: f for f in by_name.values()}
        work = run_jobs(jobs, look, _at_once(self.session), self.wishes.time_limit)
        for job, message in work:
            f = of[job.path]
            if isinstance(message, Ended) and not message.reason:
                continue
            if isinstance(message, Ended):
                f.code, f.reason = "MDH611", message.reason
            elif message["kind"] == "looked":
                f.old, f.data = data_of(message["old"]) or b"", data_of(message["data"]) or b""
                f.nests = {n["name"]: n for n in message["nests"]}
                f.code, f.reason = message["code"], message["reason"]
            else:
                f.code, f.reason = message["code"], message["reason"]
            self._event({"event": "looked", "file": f.name, "nests": len(f.nests)})

    def _was_written(self, f: _FileState) -> bool:
        """Did an earlier run write this file as it stands?  Then its results count."""
        try:
            data = Path(f.path).read_bytes()
        except OSError:
            return False
        record = self.written.get((f.name, digest(data)))
        if record is None or not record["text"].endswith(f.settings):
            return False
        known = self.results.get((f.name, record["text"]), {})
        f.nests = {n["name"]: n for n in record["nests"]}
        f.nests |= {name: m for name, m in known.items() if name in f.nests}
        f.data = f.old = data
        f.done = True
        self.reused += len(known)
        return True

    def _choose(self) -> None:
        """The nests that are meant, those with the most work where there may be only so many."""
        open_ = [
            (n["work"], f.name, name, f)
            for f in self.files if not f.done
            for name, n in f.nests.items() if n["result"] == "left out" and self._means(f, name)
        ]  # fmt: skip
        open_.sort(key=lambda x: (-x[0], x[1], x[2]))
        for _, _, name, f in open_[: self.wishes.max_nests]:
            f.chosen.add(name)
            known = self.results.get((f.name, _text(f)), {}).get(name)
            if known is not None:
                f.nests[name] = known
                self.reused += 1
            else:
                self.total += 1

    def _means(self, f: _FileState, name: str) -> bool:
        patterns = [p for p in self.wishes.select if _selects(p, f.name)]
        rests = [p.partition("::")[2] for p in patterns]
        return not patterns or any(not r or fnmatch(name, r) or fnmatch(name, f"{r}::*") for r in rests)

    def _make(self) -> None:
        order = [f for f in self.files if not f.done and (f.chosen or f.data != f.old)]
        order.sort(key=lambda f: (-max((f.nests[n]["work"] for n in f.chosen), default=0.0), f.name))
        jobs, of = [], {}
        for f in order:
            finished = {n: m for n, m in f.nests.items() if n in f.chosen and m.get("kind") == "nest"}
            jobs.append(Job(f.path, f.options, False, f.data, f.old, frozenset(f.chosen), finished))
            of[f.path] = f
        if self.reused:
            self._say(f"{self.reused} nests are known from an earlier run (--no-resume makes them again)")
        if jobs:
            importlib.import_module("mdh_lift.several")  # once, before the processes are forked
        for job, message in run_jobs(jobs, make, _at_once(self.session), self.wishes.time_limit):
            self._take(of[job.path], message)

    def _take(self, f: _FileState, message: Message | Ended) -> None:
        if isinstance(message, Ended):
            if message.reason:
                f.code, f.reason = "MDH611", message.reason
                for name in f.chosen:
                    if f.nests[name].get("kind") != "nest":
                        f.nests[name] |= {"result": "failed", "code": "MDH611", "reason": message.reason}
                self._event({"event": "gave up", "file": f.name, "reason": message.reason})
            return
        if message["kind"] == "file":
            f.code, f.reason = message["code"], message["reason"]
        elif message["kind"] == "nest":
            record = message | {"file": f.name, "text": _text(f)}
            assert self.journal is not None
            self.journal.add(record)
            f.nests[message["name"]] = record
            self._tell(f, record)
        else:
            self._leave(f, message)
            self._change(f, [change_of(c) for c in message["changes"]])

    def _leave(self, f: _FileState, message: Message) -> None:
        """Nests that were to be written and must not be: their rows, the journal and the user are told."""
        for told in message["left"]:
            reason = {"result": "refused", "code": told["code"], "reason": told["message"]}
            record = f.nests[told["name"]] | reason
            assert self.journal is not None
            self.journal.add(record)
            f.nests[told["name"]] = record
            self._say(f"{f.name}::{told['name']}  left as it is {told['code']}")
            event = {"event": "left", "file": f.name, "name": told["name"]}
            self._event(event | {"code": told["code"], "reason": told["message"]})
        self.left |= {(f.name, told["name"]): diagnostic_of(told, f.path) for told in message["left"]}
        self.session.findings += [Finding(diagnostic_of(told, f.path)) for told in message["told"]]

    def _change(self, f: _FileState, changes: Sequence[Change]) -> None:
        f.after = {c.path: c.new for c in changes}
        if not self.wishes.write:
            for c in changes:
                self.session.diff(c)
                self.session.noted["would change"] += 1
            return
        self._lock(f)
        main = next((c for c in changes if c.path == f.path and c.new is not None), None)
        if main is not None:
            assert main.new is not None
            nests = [{k: v for k, v in n.items() if k not in ("part", "entries")} for n in f.nests.values()]
            record = {"kind": "writing", "file": f.name, "text": _text(f), "new": digest(main.new)}
            assert self.journal is not None
            self.journal.add(record | {"nests": nests})
        whole = main or Change(f.path, f.data, f.data)
        others = [c for c in changes if c is not main]
        whole = replace(
            whole,
            beside=tuple(c for c in others if c.new is not None),
            removed=tuple(c for c in others if c.new is None),
        )
        if self.session.attempt(f.path, partial(journal.make, whole)) is None:
            return
        for c in changes:
            self.session.noted["written"] += 1
            self._event({"event": "written", "file": c.path})

    def _lock(self, f: _FileState) -> None:
        kept = [n for name, n in f.nests.items() if (f.name, name) not in self.left]
        entries = [_lock_entry(e) for n in kept for e in n.get("entries", ())]
        if entries and not f.options.locked:
            self.session.attempt(f.path, partial(pipeline.write_lock, f.options.lock_path, entries))

    # ------------------------------------------------------------------ progress

    def _tell(self, f: _FileState, n: Message) -> None:
        self.told += 1
        speedup = n.get("speedup")
        told = f"{n['result']} {n['code']}".rstrip()
        told += f" {speedup['median']:.2f} x [{speedup['low']:.2f}, {speedup['high']:.2f}]" if speedup else ""
        self._say(f"[{self.told}/{self.total}] {f.name}::{n['name']}  {told}")
        keys = ("name", "result", "code", "reason", "speedup", "verified")
        self._event({"event": "nest", "file": f.name} | {k: n.get(k) for k in keys})

    def tell_program(self, p: Program) -> None:
        self._say(f"program {p.name}  {p.result}")
        self._event({"event": "program", "name": p.name, "result": p.result, "reason": p.reason})

    def _say(self, line: str) -> None:
        plain = self.wishes.progress in ("auto", "plain") and not self.session.quiet
        if plain:
            click.echo(line.encode("utf-8", "backslashreplace").decode(), err=True)

    def _event(self, event: Mapping[str, Any]) -> None:
        if self.wishes.progress == "json":
            print(json.dumps(dict(event), sort_keys=True), file=sys.stderr, flush=True)


def _lock_entry(plain: Mapping[str, Any]) -> locks.Entry:
    speedup = plain.get("speedup")
    return locks.Entry(**{**plain, "speedup": None if speedup is None else Ratio(**speedup)})


# --------------------------------------------------------------------------- the end


def _suite(session: Session, paths: Sequence[str], run: _Run, wishes: Wishes) -> list[Program]:
    """The whole programs that the configuration of the tree names."""
    first = (paths or ["."])[0]
    suite = session.config(first).suite
    if not suite.programs or not wishes.suite:
        return []
    from mdh_lift.suite import compared

    root = configuration.root(first, session.config_file_of(first))
    changes = {str(Path(p).resolve()): data for f in run.files for p, data in f.after.items()}
    found = []
    for program in suite.programs:
        result = compared(root, program, suite, changes)
        found.append(result)
        run.tell_program(result)
    return found


def board_of(files: Sequence[_FileState], programs: Sequence[Program]) -> Scoreboard:
    entries, others = [], []
    for f in files:
        for name, n in f.nests.items():
            known = {k: v for k, v in n.items() if k in _OF_ENTRY and v is not None}
            entries.append(msgspec.convert(known | {"name": f"{f.name}::{name}"}, Entry))
        if not f.nests or f.code:
            others.append(File(f.name, f.code, f.reason))
    return Scoreboard(entries, others, list(programs), len(files)).in_order()


def _finish(
    session: Session, wishes: Wishes, run: _Run, former: Scoreboard | None, programs: Sequence[Program]
) -> int:
    board = board_of(run.files, programs)
    session.findings += _findings(run, board, former)
    if former is None and session.noted["would change"]:
        session.statuses.append(1)
    for name in wishes.summary:
        _write_summary(name, scoreboard.rendered(board, name))
    if session.output_format == "json":
        return session.finish(scoreboard.to_json(board))
    if session.for_people:
        session.result(scoreboard.render_text(board))
    found = session.noted
    session.ending = ", ".join(f"{n} files {what}" for what, n in found.items() if n) or "no file changed"
    return session.finish()


def _findings(run: _Run, board: Scoreboard, former: Scoreboard | None) -> Iterator[Finding]:
    """What makes the run fail: wrong results, files that were given up, what got worse.

    All other reasons are in the scoreboard.  What was as bad in the scoreboard to compare with is no news.
    """
    before = {e.name: e.code for e in former.nests} if former is not None else {}
    before |= {x.name: x.code for x in former.files} if former is not None else {}
    by_name = {f.name: f for f in run.files}
    for e in board.nests:
        file = by_name[e.file]
        nest = file.nests[short_name(e.name)]
        for code in sorted({e.code, *nest.get("wrong", ())} - {""}):
            reason = e.reason if code == e.code else "a configuration gave a wrong result"
            told = Diagnostic(code, reason, file.path, line=e.line)
            grave = told.exit_status >= 3 and code != "MDH604"  # noise is a result, too
            if grave and (told.exit_status == 3 or before.get(e.name) != code):
                yield Finding(told)
    for (file_name, name), left in run.left.items():
        if before.get(f"{file_name}::{name}") != left.code:
            yield Finding(left)
    for x in board.files:
        if x.code:
            told = Diagnostic(x.code, x.reason, by_name[x.name].path)
            if told.exit_status >= 2 and before.get(x.name) != x.code:
                yield Finding(told)
    for p in board.programs:
        if p.result != "same output":
            code = "MDH611" if p.result == "failed" else "MDH612"
            yield Finding(Diagnostic(code, f"program `{p.name}`: {p.reason}", p.name))
    if former is not None:
        for name, line, why in scoreboard.worse(former, board):
            path = name.rsplit("::", 2)[0] if "::" in name else name
            real = by_name[path].path if path in by_name else path
            yield Finding(Diagnostic("MDH610", f"`{name}`: {why}", real, line=line))


def _write_summary(name: str, text: str) -> None:
    path, data = Path(name), text.encode("utf-8", "backslashreplace")
    try:
        old = path.read_bytes() if path.exists() else None
        if old == data:
            return
        write_atomic(name, data, old, like=str(path.resolve().parent) if old is None else "")
        if old is None:
            path.chmod(0o644)
    except (OSError, Refusal) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"cannot write {name}: {reason}") from None
