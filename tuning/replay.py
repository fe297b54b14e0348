"""A recorded search as the result that it had, without a compiler and without running anything.

    SearchRecord, generator -> TuneResult

The code of the winner is generated again and must be the recorded one to the byte (by its hash), so what a
replay gives is what was verified and measured.  Shown right by ``tests/test_records.py``: the replay of a
search is that search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lowering.point import Point
from mdh_core.diagnostics import CODES, Diagnostic, Refusal
from tuning.harness import Candidate
from tuning.measure import Measurement, ratio_of
from tuning.records import RACE, SEARCH, VERIFICATION, SearchRecord, Step
from tuning.results import TuneResult, Winner, text_hash
from tuning.runner import OK, Outcome
from tuning.search import Evaluation, SearchResult
from tuning.verify import VerifySummary

_COUNTS = ("cases", "handled", "declined", "exact", "skipped", "undetermined", "differs")


class ReplayError(Exception):
    """The record does not fit to what the generator makes now; the message says how."""


def replayed(record: SearchRecord, make: Callable[[Point], Candidate]) -> TuneResult:
    """What the search of a finished record ended with.  Raises ``ReplayError``."""
    failed = {s.configuration: s for s in record.steps if s.phase == VERIFICATION}
    searched = [_evaluation(s, failed) for s in record.steps if s.phase == SEARCH]
    raced = [_evaluation(s, failed) for s in record.steps if s.phase == RACE]
    leaders = sorted(raced or (e for e in searched if e.ok), key=lambda e: e.seconds)
    found = SearchResult(tuple(searched), tuple(leaders), record.strategy, record.seed, record.stopped)
    told = tuple(Diagnostic(d["code"], d["message"], help=d.get("help", "")) for d in record.diagnostics
                 if d.get("code") in CODES)  # fmt: skip
    original = record.original_seconds
    return TuneResult(_winner(record, make), found, None, original, told, record)


def _evaluation(step: Step, failed: Mapping[str, Step]) -> Evaluation:
    if step.configuration in failed:
        why = failed[step.configuration]
        return Evaluation(step.point, Outcome(why.outcome, why.reason), text=step.text_hash)
    seconds = step.seconds if step.ok else math.inf
    outcome = Outcome(step.outcome, step.reason)
    return Evaluation(step.point, outcome, seconds, step.reused, step.text_hash, step.times)


def _winner(record: SearchRecord, make: Callable[[Point], Candidate]) -> Winner | None:
    if not record.winner:
        return None
    step = Step(0, 0.0, SEARCH, record.winner, OK)
    try:
        candidate = make(step.point)
    except (Refusal, ValueError, KeyError) as error:
        raise ReplayError(f"this version makes no code for the recorded configuration: {error}") from None
    if text_hash(candidate) != record.winner_text:
        raise ReplayError("this version makes other code for the recorded configuration")
    measured = Measurement(Outcome(record.measured), record.pairs, ratio_of(record.pairs))
    summary = verification_of(record.verification)
    return Winner(step.point, candidate, "", record.winner_text, summary, measured)


# --------------------------------------------------------------------------- verification as JSON


def verification_json(summary: VerifySummary) -> dict[str, Any]:
    """All of a summary; ``verification_of`` is its inverse."""
    return {**summary.as_json(), "max_abs": summary.max_abs, "max_rel": summary.max_rel}


def verification_of(data: Mapping[str, Any]) -> VerifySummary:
    return replace(
        VerifySummary(Outcome(data.get("outcome", ""))),
        **{name: data.get(name, 0) for name in (*_COUNTS, "max_ulp", "max_abs", "max_rel")},
        error=data.get("error_ulp", 0.0),
        bound=data.get("bound_ulp", 0.0),
        sizes=tuple(data.get("sizes", ())),
        kinds=dict(data.get("data", {})),
        plain=bool(data.get("against_O0", False)),
        notes=tuple(data.get("notes", ())),
    )


def diagnostics_json(diagnostics: Sequence[Diagnostic]) -> tuple[dict[str, str], ...]:
    return tuple({"code": d.code, "message": d.message, "help": d.help} for d in diagnostics)
