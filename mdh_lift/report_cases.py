"""What a run looked at, as the test cases of a JUnit report; apart from it, as that needs an XML library."""

from __future__ import annotations

from dataclasses import dataclass


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
