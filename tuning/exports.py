"""Recorded searches in the formats of others: JSON of our own, CSV, T4, Kernel Tuner's cache.

    records -> text

``t4``: results with metadata as in the schemas that Kernel Tuner ships (version 1.0.0), every failed
candidate included.  ``kernel_tuner``: the cache file of one search, which its ``simulation_mode`` and its
dashboard read.  Times are seconds in JSON and CSV, milliseconds in the other two, as their readers expect.
``tests/test_exports.py`` validates against these schemas and reads with these readers.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from tuning import runner
from tuning.processes import TIMED_OUT
from tuning.records import RACE, SEARCH, RecordError, SearchRecord, Step, from_json, to_json

KIND = "mdh-lift tuning records"
SCHEMA_VERSION = 1  # of the JSON export
T4_VERSION = "1.0.0"
_COLUMNS = (
    *("nest", "source_hash", "fingerprint", "size_class", "target", "strategy", "budget", "seed", "record"),
    *("ordinal", "offset", "phase", "outcome", "reason", "seconds", "runs", "reused", "winner", "text_hash"),
    "configuration",
)
# what a search calls an outcome, and T4; what is not here failed when it ran
_T4 = {
    runner.OK: "correct",
    runner.CUT_OFF: "timeout",  # slower than a multiple of the best: it was stopped
    TIMED_OUT: "timeout",
    runner.COMPILE_FAILED: "compile",
    runner.WRONG_RESULT: "correctness",
    runner.NOT_GENERATED: "constraints",
    runner.OVER_LIMITS: "constraints",
    runner.DECLINED: "constraints",
}
_KERNEL_TUNER = {"compile": "CompilationFailedConfig", "constraints": "InvalidConfig"}


class ExportError(ValueError):
    """A format cannot say what is asked for; the message says why."""


def as_json(records: Sequence[SearchRecord]) -> str:
    """What ``from_text`` reads."""
    content = {"kind": KIND, "schema_version": SCHEMA_VERSION, "searches": [to_json(r) for r in records]}
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def from_text(text: str) -> list[SearchRecord]:
    """The records of an export.  Raises ``RecordError``."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON ({error})") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise RecordError("not an export of `mdh-lift db export --as json`")
    if content.get("schema_version") != SCHEMA_VERSION:
        found = content.get("schema_version")
        raise RecordError(f"schema version {found!r}, this version reads {SCHEMA_VERSION}")
    searches = content.get("searches")
    if not isinstance(searches, list):
        raise RecordError("`searches` is no list")
    return [from_json(data) for data in searches]


def as_csv(records: Sequence[SearchRecord]) -> str:
    """One row per step."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for r in records:
        shared = (r.nest, r.source_hash, r.fingerprint, r.size_class, r.target, r.strategy, r.budget, r.seed)
        for s in r.steps:
            won = int(s.configuration == r.winner)
            seconds = repr(s.seconds) if s.ok else ""
            own = (s.ordinal, round(s.offset, 6), s.phase, s.outcome, s.reason, seconds, len(s.times))
            writer.writerow((*shared, r.id, *own, int(s.reused), won, s.text_hash, s.configuration))
    return out.getvalue()


def t4(records: Sequence[SearchRecord]) -> str:
    """Results and metadata in one object.  Machine facts hold no names of hosts, users or places."""
    return json.dumps(t4_content(records), indent=1, ensure_ascii=False) + "\n"


def t4_content(records: Sequence[SearchRecord]) -> dict[str, Any]:
    """The same as plain values."""
    machines = {r.fingerprint: {"fingerprint": r.fingerprint, **r.machine} for r in records}
    systems = sorted({str(r.machine["system"]) for r in records if "system" in r.machine})
    versions = sorted({f"{name}=={v}" for r in records for name, v in r.versions.items()})
    return {
        "schema_version": T4_VERSION,
        "metadata": {
            "timeunit": "milliseconds",
            "hardware": {
                "hardware_description": [machines[name] for name in sorted(machines)],
                "operating_system": ", ".join(systems) or "unknown",
            },
            "environment": {"device_query": {}, "requirements": versions},
        },
        "results": [_t4_result(r, s) for r in records for s in r.steps if s.phase != RACE],
    }


def invalidity(step: Step) -> str:
    """T4's word for how an evaluation ended."""
    return "runtime" if step.outcome == runner.OK and not step.times else _T4.get(step.outcome, "runtime")


def _t4_result(record: SearchRecord, step: Step) -> dict[str, Any]:
    state = invalidity(step)
    runtimes = [1000 * t for t in step.times]
    return {
        "timestamp": _date(record.started + step.offset),
        "configuration": step.point,
        "objectives": ["time"],
        "times": {"runtimes": runtimes, "framework": 0.0, "search_algorithm": 0.0},
        "invalidity": state,
        "correctness": 1 if state == "correct" else 0,
        "measurements": [
            *([{"name": "time", "value": 1000 * step.seconds, "unit": "ms"}] if step.ok else []),
            {"name": "nest", "value": record.nest, "unit": ""},
            {"name": "size_class", "value": record.size_class, "unit": ""},
            {"name": "fingerprint", "value": record.fingerprint, "unit": ""},
            {"name": "outcome", "value": step.outcome, "unit": ""},
            *([{"name": "reason", "value": step.reason, "unit": ""}] if step.reason else []),
        ],
    }


def _date(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def kernel_tuner(record: SearchRecord) -> str:
    """The cache of one search: each configuration once, as it ended.  Raises ``ExportError``."""
    steps = {s.configuration: s for s in record.steps if s.phase == SEARCH}
    steps |= {s.configuration: s for s in record.steps if s.phase not in (SEARCH, RACE)}
    if not steps:
        raise ExportError(f"the search of `{record.nest}` tried nothing")
    points = [s.point for s in steps.values()]
    names = list(points[0])
    if any(list(p) != names for p in points):
        raise ExportError(f"configurations of `{record.nest}` have different parameters")
    content = {
        "device_name": record.fingerprint,
        "kernel_name": record.nest,
        "problem_size": [int(n) for n in re.findall(r"=(\d+)", record.size_class)] or [1],
        "tune_params_keys": names,
        "tune_params": {n: list(dict.fromkeys(p[n] for p in points)) for n in names},
        "objective": ["time"],
        "cache": {
            ",".join(str(v) for v in s.point.values()): _cached(record, s) for s in steps.values()
        },
    }
    # its reader takes a file that does not end in exactly this way for one that was cut off
    return json.dumps(content, indent=0, ensure_ascii=False)


def _cached(record: SearchRecord, step: Step) -> dict[str, Any]:
    spent = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")
    entry = {**step.point, **dict.fromkeys(spent, 0.0), "timestamp": _date(record.started + step.offset)}
    state = invalidity(step)
    if state == "correct":
        return {**entry, "time": 1000 * step.seconds, "times": [1000 * t for t in step.times]}
    name = _KERNEL_TUNER.get(state, "RuntimeFailedConfig")
    return {**entry, "time": name, "__error__": name}
