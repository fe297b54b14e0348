"""How a search goes on and how long it may."""

from __future__ import annotations

import re
from dataclasses import dataclass

STRATEGIES = {
    "random": "random_sample",
    "genetic": "genetic_algorithm",
    "greedy": "greedy_ils",
    "annealing": "simulated_annealing",
    "brute": "brute_force",
    "firefly": "firefly_algorithm",
    "pso": "pso",
    "mls": "mls",
}
DEFAULT_STRATEGY = "greedy"


@dataclass(frozen=True, slots=True)
class Budget:
    """Evaluations and/or seconds; None = unbounded."""

    evaluations: int | None = None
    seconds: float | None = None

    @property
    def nothing(self) -> bool:
        return self.evaluations == 0 or self.seconds == 0

    def __str__(self) -> str:
        parts = [f"{self.evaluations}ev"] if self.evaluations is not None else []
        parts += [f"{self.seconds:g}s"] if self.seconds is not None else []
        return ",".join(parts) or "unbounded"


def parse_budget(text: str) -> Budget:
    """``200ev``, ``90s``, ``2m``, ``1h``, ``200ev,2m``, ``0``.

    >>> parse_budget("200ev,2m")
    Budget(evaluations=200, seconds=120.0)
    """
    evaluations: int | None = None
    seconds: float | None = None
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ev|s|m|h|)\s*", part)
        if found is None or (found[2] == "" and float(found[1]) != 0):
            raise ValueError(f"budget {text!r}: expected for example 200ev, 90s, 2m or 0")
        if found[2] in ("ev", ""):
            evaluations = int(float(found[1]))
        else:
            seconds = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]
    return Budget(evaluations, seconds)
