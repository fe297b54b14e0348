"""What tuning ends with: a winner that may be spliced, and the way there."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass

from lowering.point import Point
from mdh_core.diagnostics import Diagnostic
from tuning.harness import Candidate
from tuning.measure import Measurement, Ratio
from tuning.records import SearchRecord
from tuning.runner import WRONG_RESULT, Outcome
from tuning.search import Evaluation, SearchResult
from tuning.verify import VerifySummary


@dataclass(frozen=True, slots=True)
class Winner:
    """The candidate that may be spliced: it passed ``verification``; ``measurement`` is paired."""

    point: Point
    candidate: Candidate
    program: str
    text_hash: str
    verification: VerifySummary
    measurement: Measurement

    @property
    def ratio(self) -> Ratio:
        return self.measurement.ratio


@dataclass(frozen=True, slots=True)
class TuneResult:
    """``problem`` is set where the original could not be built or run; then nothing was tried.

    ``record``: what the database has of it; None where nothing is recorded.
    """

    winner: Winner | None
    search: SearchResult | None
    problem: Outcome | None = None
    original_seconds: float = math.nan
    diagnostics: tuple[Diagnostic, ...] = ()
    record: SearchRecord | None = None

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        return self.search.evaluations if self.search else ()

    @property
    def reasons(self) -> dict[str, int]:
        """Number of evaluations per outcome kind."""
        return self.search.reasons if self.search else {}

    @property
    def wrong(self) -> tuple[Evaluation, ...]:
        return tuple(e for e in self.evaluations if e.outcome.kind == WRONG_RESULT)


_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|("(?:\\.|[^"\\])*")', re.DOTALL)


def text_hash(candidate: Candidate) -> str:
    """Hash of the generated code; its comments do not count, in which places in the source are named."""
    text = "\0".join((candidate.kernel_text, candidate.call, candidate.after))
    if candidate.unit:
        text += "\0" + candidate.unit
    code = _COMMENT.sub(lambda found: found[1] or " ", text)
    return hashlib.sha256(code.encode()).hexdigest()[:16]
