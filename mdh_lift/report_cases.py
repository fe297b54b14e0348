"""What a run looked at: test cases of a JUnit report, and rows of the Markdown table.

Apart from the reports themselves, as these need libraries that most runs do not.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mdh_core.diagnostics import Refusal
from mdh_lift.pipeline import NestReport, target_of

if TYPE_CHECKING:  # what runs code is imported when it is asked for
    from mdh_lift.improve import Improvement


@dataclass(frozen=True, slots=True)
class Case:
    """A nest (``path.c::function::label``) or a file that was looked at.

    target   that it was run for; empty: it was read only
    skipped  why nothing was run; empty: it was
    seconds  that it took, 0 where that was not measured
    """

    name: str
    file: str
    target: str = ""
    skipped: str = ""
    seconds: float = 0.0


def case_of(nest: NestReport, asked: str, improvement: Improvement | None, seconds: float) -> Case:
    """A nest as a test of its target; nothing was run of one that was refused."""
    codes = [f.diagnostic.code for f in nest.findings if f.diagnostic.severity == "error"]
    skipped = ", ".join(dict.fromkeys(codes)) or "refused" if nest.status == "refused" else ""
    target = improvement.target if improvement is not None else ""
    if not target:
        with contextlib.suppress(Refusal):
            target = target_of(nest, asked)
    return Case(nest.name, nest.name.rsplit("::", 2)[0], target, skipped, seconds)


def summary_of(nest: NestReport, improvement: Improvement | None) -> dict[str, str]:
    """A row of the table of a verb that runs code."""
    row = {"nest": nest.name, "status": nest.status, "target": "", "verified": "", "speedup": ""}
    if improvement is not None:
        verified, ratio = improvement.verification, improvement.speedup
        row |= {"target": improvement.target, "verified": f"{verified.cases} runs" if verified else ""}
        row |= {"speedup": f"{ratio.median:.2f} x ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else ""}
    return row
