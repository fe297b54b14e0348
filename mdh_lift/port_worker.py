"""What ``port`` does with one file, in a process of its own: look at it, or make its nests quicker.

    look    file -> nests with their estimated work          (preprocessor only)
    make    file, chosen nests -> results, one by one -> changed files

Messages are plain values; nothing is written here, and nothing is raised: what is wrong is in the results.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mdh_core.diagnostics import CODES, Diagnostic, Refusal
from mdh_core.source import SourceFile
from mdh_lift import pipeline, verbs
from mdh_lift.annotate import annotated
from mdh_lift.estimate import estimated
from mdh_lift.files import Change, read_source
from mdh_lift.findings import Finding
from mdh_lift.pipeline import FileReport, NestReport, Options, short_name
from mdh_lift.scan import LIFTABILITY, operators_of
from mdh_lift.scoreboard import Interval
from mdh_lift.session import Session, write_crash_report
from mdh_lift.splice import SplicePart
from mdh_lift.workers import Message, Send
from tuning.turns import Turns

if TYPE_CHECKING:
    from mdh_lift.improve import Improvement
    from tuning.measure import Measurement

_NOT_THE_REASON = ("MDH605", "MDH606")
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Job:
    """``data``: the file's bytes as they are to be read, with directives; None: those on disk.

    chosen    names of the nests that are to be made
    finished  results that are there already, by name
    """

    path: str
    options: Options
    annotate: bool = False
    data: bytes | None = None
    old: bytes = b""
    chosen: frozenset[str] = frozenset()
    finished: Mapping[str, Message] = field(default_factory=dict)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


# --------------------------------------------------------------------------- look


def look(job: Job, send: Send) -> None:
    """Sends the file's bytes, its nests, and what is wrong with it."""
    turns = _turns(job)
    turns.enter()
    try:
        send(_looked_at(job))
    except Refusal as refusal:
        send({"kind": "file", "code": refusal.diagnostic.code, "reason": refusal.diagnostic.message})
    except Exception as error:
        send({"kind": "file", "code": "MDH901", "reason": _crashed(error)})


def _looked_at(job: Job) -> Message:
    source = read_source(job.path)
    data = source.data
    if job.annotate:
        new = annotated(source, job.options).change.new
        assert new is not None
        data = new
    report = pipeline.check_source(SourceFile(job.path, data), job.options)
    wrong = [f for f in report.findings if f.diagnostic.severity == "error"]
    first = wrong[0].diagnostic if wrong else None
    return {
        "kind": "looked",
        "old": _text(source.data),
        "data": _text(data),
        "nests": [_nest_message(n) for n in report.nests],
        "code": first.code if first else "",
        "reason": first.message if first else "",
    }


def _nest_message(nest: NestReport) -> Message:
    """What is known without running anything."""
    why = _why_not_tried(nest)
    work = estimated(nest.lifted.nest).operations if nest.lifted is not None else 0.0
    return {
        "name": short_name(nest.name),
        "line": nest.line,
        "status": nest.status,
        "operators": operators_of(nest.lifted)
        if nest.lifted is not None and nest.status != "refused"
        else "",
        "work": work * LIFTABILITY[nest.status],
        "result": "refused" if why is not None else "left out",
        "code": why.code if why is not None else "",
        "reason": why.message if why is not None else "",
    }


def _why_not_tried(nest: NestReport) -> Diagnostic | None:
    codes = () if nest.status == "refused" else ("MDH414", "MDH502")
    return next(
        (f.diagnostic for f in nest.findings
         if f.diagnostic.code in codes or (not codes and f.diagnostic.severity == "error")), None
    )  # fmt: skip


# --------------------------------------------------------------------------- make


def make(job: Job, send: Send) -> None:
    """Sends a result for each chosen nest that is not finished, and then the changes of files."""
    turns = _turns(job)
    turns.enter()
    options = replace(job.options, turns=turns)
    assert job.data is not None
    try:
        report = pipeline.check_source(SourceFile(job.path, job.data), options)
        made = {
            n: _improvement_of(job, m)
            for n, m in job.finished.items()
            if n in job.chosen and not m.get("apart")
        }
        for nest in report.nests:
            name = short_name(nest.name)
            if name in job.chosen and name not in made:
                turns.pause()
                message, made[name] = _made(report, nest, options)
                send(message)
        found = [made.get(short_name(n.name)) for n in report.nests]
        kept = [i for i in found if i is not None]
        try:
            send(_change(report, job, options, kept))
        except Refusal as refusal:  # of a file beside it: the results stand, nothing is written
            if not kept:
                raise
            told = [Finding(refusal.diagnostic, nest=i.name) for i in kept]
            send({"kind": "change", "changes": [], "left": [_finding(f) for f in told], "told": []})
    except Refusal as refusal:
        send({"kind": "file", "code": refusal.diagnostic.code, "reason": refusal.diagnostic.message})
    except Exception as error:
        send({"kind": "file", "code": "MDH901", "reason": _crashed(error)})


def _made(report: FileReport, nest: NestReport, options: Options) -> tuple[Message, Improvement | None]:
    from mdh_lift import several

    message = _nest_message(nest) | {"kind": "nest", "result": "failed"}
    try:
        found = several.improve(report, nest, options, "all", lambda *_: None)
    except Refusal as refusal:
        d = refusal.diagnostic
        return message | {"code": d.code, "reason": d.message, "notes": list(d.notes)}, None
    except Exception as error:
        return message | {"code": "MDH901", "reason": _crashed(error)}, None
    return message | _result(found, options), found


def _result(found: Improvement, options: Options) -> Message:
    reasons = [f.diagnostic for f in found.findings if f.diagnostic.code not in _NOT_THE_REASON]
    first: Diagnostic | None = max(reasons, key=_gravity, default=None)
    agreed = found.verification is not None  # of the winner, which passed
    result = "accepted" if found.part is not None else "not faster" if agreed else "failed"
    if first is not None and first.code in ("MDH701", "MDH702"):
        result = "failed" if found.part is None else result
    return {
        "result": result,
        "code": "" if first is None or result == "accepted" else first.code,
        "reason": "" if first is None or result == "accepted" else _reason(first),
        "target": found.target,
        "sizes": found.sizes,
        "verified": found.verification.cases if found.verification is not None else 0,
        **_times(found.measurement),
        "part": None if found.part is None else asdict(found.part),
        "apart": bool(found.apart),
        "entries": [asdict(e) for e in found.entries],
        "wrong": [d.code for d in reasons if d.code in ("MDH701", "MDH702")],
    }


def _reason(d: Diagnostic) -> str:
    """Without figures, which stand in the row."""
    return CODES[d.code].title if d.code in ("MDH603", "MDH604") else d.message


def _gravity(d: Diagnostic) -> tuple[int, str]:
    return {"error": 2, "warning": 1}.get(d.severity, 0), d.code


def _times(taken: Measurement | None) -> Message:
    """Medians and intervals, in seconds; the ratio is that of the pairs."""
    from tuning.measure import median, median_interval

    if taken is None or not taken.pairs:
        return {"before": None, "after": None, "speedup": None}
    found: Message = {}
    for k, name in enumerate(("before", "after")):
        times = [pair[k] for pair in taken.pairs]
        low, high = median_interval(times, _CONFIDENCE)
        whole = (min(times), max(times)) if high == float("inf") else (low, high)
        found[name] = _plain(Interval.rounded(median(times), *whole))
    r = taken.ratio
    return found | {"speedup": _plain(Interval.rounded(r.median, r.low, r.high))}


def _plain(i: Interval | None) -> dict[str, float] | None:
    return None if i is None else {"median": i.median, "low": i.low, "high": i.high}


def _improvement_of(job: Job, message: Message) -> Improvement | None:
    """As far as the change of the file needs it."""
    from mdh_lift.improve import Improvement

    part = message.get("part")
    if part is None:
        return None
    return Improvement(f"{job.path}::{message['name']}", "", message["target"], part=SplicePart(**part))


def _change(report: FileReport, job: Job, options: Options, made: Sequence[Improvement]) -> Message:
    """All changes of files, base64; nothing where nothing changes.

    ``left``: nests that must stay as they are because of others, with the reason; ``told``: what is wrong
    with these others.
    """
    quiet = Session(quiet=True)
    wanted = {i.name for i in made if i.part is not None or i.apart}
    made = verbs.with_neighbours(quiet, report, options, list(made))
    left = wanted - {i.name for i in made}
    of_left = [f for f in quiet.findings if f.diagnostic.code == "MDH516"]
    reasons = [replace(f, nest=n) for n in sorted(left) for f in of_left if _names(f, n)]
    change = Change(job.path, job.data, job.data)
    if any(i.part is not None for i in made):
        change = verbs.spliced(report, made, options.force)
    changes = replace(change, old=job.old).all
    return {
        "kind": "change",
        "changes": [
            {"path": c.path, "old": _text_or_none(c.old), "new": _text_or_none(c.new)} for c in changes
        ],
        "left": [_finding(f) for f in reasons],
        "told": [_finding(f) for f in quiet.findings if f not in of_left and left],
    }


def _names(finding: Finding, nest: str) -> bool:
    """Is it the nest of this name that a finding is about?"""
    return f"`{short_name(nest)}`" in finding.diagnostic.message


# --------------------------------------------------------------------------- plain values


def _turns(job: Job) -> Turns:
    from tuning.runner import default_cache_dir

    return Turns(default_cache_dir())


def _crashed(error: Exception) -> str:
    headline = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"{headline}; crash report: {write_crash_report(error)}"


def _finding(found: Finding) -> Message:
    d = found.diagnostic
    return {
        "name": short_name(found.nest) if found.nest else "", "code": d.code, "message": d.message,
        "file": found.file, "line": found.start[0], "notes": list(d.notes), "help": d.help,
    }  # fmt: skip


def diagnostic_of(message: Mapping[str, Any], file: str) -> Diagnostic:
    """What ``_finding`` made a message of; ``file``: where it names none."""
    return Diagnostic(
        message["code"], message["message"], message["file"] or file, line=message["line"],
        notes=tuple(message["notes"]), help=message["help"],
    )  # fmt: skip


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _text_or_none(data: bytes | None) -> str | None:
    return None if data is None else _text(data)


def data_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def change_of(message: Mapping[str, Any], findings: Sequence[Finding] = ()) -> Change:
    return Change(message["path"], data_of(message["old"]), data_of(message["new"]), tuple(findings))
