"""What ``prepare`` writes and ``run`` reads: a folder with ``plan.json`` and a folder of files for each case.

    CASE/spec         one case as tuning/driver.c reads it
    CASE/reference.c  the nest, and the kernel for processors in front of it: gives the expected results
    CASE/subject.c    the nest, and the call of the emitted host function in its place
    CASE/K.cu         the emitted file of the K-th point; the 0-th is the choice without a search

Only Python's standard library is needed to read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

VERSION = 1
Point = Mapping[str, int | str]


class Unusable(Exception):  # noqa: N818 - told in one line
    """A folder that is not one that ``--prepare`` of this version wrote."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A case: what it is to peers, its work, and its points.

    operations  multiplications and additions; 0 where the peak says nothing of the nest
    traffic     bytes that must be moved
    """

    name: str
    operation: str
    extents: tuple[int, ...]
    operations: int
    traffic: int
    defines: tuple[str, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """``device``: what the points were chosen for; ``small``: at the sizes of quick tests."""

    device: str
    small: bool
    cases: tuple[Planned, ...]


def write(plan: Plan, directory: Path) -> None:
    content = {"version": VERSION, **asdict(plan)}
    (directory / "plan.json").write_text(json.dumps(content, indent=1) + "\n")


def read(directory: Path) -> Plan:
    """Raises ``Unusable`` where the folder has no plan of this version."""
    try:
        content = json.loads((directory / "plan.json").read_text())
        if content.pop("version") != VERSION:
            raise Unusable(f"{directory} was prepared by another version: --prepare it again")
        cases = tuple(Planned(**_tuples(c)) for c in content.pop("cases"))
        return Plan(cases=cases, **content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unusable(f"{directory} is no folder that --prepare wrote: {error}") from None


def _tuples(case: Mapping[str, object]) -> dict[str, object]:
    return {k: tuple(v) if isinstance(v, Sequence) and not isinstance(v, str) else v for k, v in case.items()}
