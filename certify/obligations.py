"""What a certificate is made of.

certificate ::= Certificate(obligations: Obligation*)
obligation  ::= Obligation(subject, name, status, method, detail)

proved    for all sizes
checked   compared computation by computation at small sizes, as ``detail`` says
refuted   there is a counterexample: ``detail``
unknown   neither; ``detail`` says why
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from certify.sets import GaveUp

PROVED, CHECKED, REFUTED, UNKNOWN = "proved", "checked", "refuted", "unknown"


@dataclass(frozen=True, slots=True)
class Obligation:
    """``subject``: the program, stage or nest that it is about."""

    subject: str
    name: str
    status: str
    method: str = ""  # sets | algebra | trace
    detail: str = ""

    def __str__(self) -> str:
        how = f" ({self.method})" if self.method else ""
        return f"{self.status}{how}: {self.subject}: {self.name}" + (
            f": {self.detail}" if self.detail else ""
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    obligations: tuple[Obligation, ...]

    @property
    def refuted(self) -> tuple[Obligation, ...]:
        return tuple(o for o in self.obligations if o.status == REFUTED)

    @property
    def unknown(self) -> tuple[Obligation, ...]:
        return tuple(o for o in self.obligations if o.status == UNKNOWN)

    @property
    def holds(self) -> bool:
        """Nothing is refuted and nothing is unknown."""
        return not self.refuted and not self.unknown

    @property
    def summary(self) -> str:
        """``21 proved, 2 checked``."""
        counts = Counter(o.status for o in self.obligations)
        return ", ".join(f"{counts[s]} {s}" for s in (PROVED, CHECKED, REFUTED, UNKNOWN) if counts[s])

    def as_json(self) -> dict[str, object]:
        rows = [
            {"subject": o.subject, "name": o.name, "status": o.status, "method": o.method, "detail": o.detail}
            for o in self.obligations
        ]
        return {"holds": self.holds, "summary": self.summary, "obligations": rows}


def prove(
    subject: str, name: str, counterexample: Callable[[], str | None], method: str = "sets"
) -> Obligation:
    """Proved where there is no counterexample, refuted where there is one, else unknown."""
    try:
        found = counterexample()
    except GaveUp as gave_up:
        return Obligation(subject, name, UNKNOWN, method, f"too hard: {gave_up}")
    if found is None:
        return Obligation(subject, name, PROVED, method)
    return Obligation(subject, name, REFUTED, method, found)
