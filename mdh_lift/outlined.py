"""OpenMP kernels in a file of their own (`--style outline`), beside the source that calls them.

    Plan, name of the source  ->  OutlinedPlan: candidates with a file of their own, parts of the final file

The file has all that kernels need of the source: structures and functions as the nest knows them.
A search and the last verification compile and run kernels in such files, as they will be used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

from emit.openmp_file import OpenmpFile, OpenmpPart, openmp_file
from lowering.parameters import to_json
from lowering.point import Point
from mdh_lift import beside, entry, kernels
from mdh_lift.gpu_plans import external_name
from mdh_lift.kernels import Plan
from tuning.harness import Candidate


@dataclass(frozen=True, slots=True)
class OutlinedPlan(Plan):
    """A plan whose kernels are external functions; ``source``: path of the source file; ``directory``: the
    source's, as ``external_name`` wants it."""

    source: str = ""
    directory: str = ""

    @property
    def name(self) -> str:
        nest = self.lifted.nest
        name = external_name(self.source, nest.function, nest.label, self.directory)
        return name + self.variant.suffix

    @property
    def apart(self) -> bool:
        return True

    def candidate(self, point: Point, described: bool = False) -> Candidate:
        """What a point would put into the source, and the file beside it."""
        part = self.part(point, described)
        file = outlined_file(self.name, self.source, [part])
        configurations = [to_json(c) for c in self.configurations(point)]
        return Candidate(
            file.header, part.call, kernels.after_text(self.lifted),
            json.dumps(configurations, sort_keys=True), file.text,
        )  # fmt: skip

    def part(self, point: Point, described: bool = True) -> OpenmpPart:
        """For a file with other nests."""
        nest, kernel = self.lifted.nest, self.kernel(point, described)
        return OpenmpPart(
            kernel.name,
            f"{nest.function}::{nest.label}",
            kernel.prototype,
            kernel.call,
            kernel.text.strip("\n"),
            tuple(entry.records_of(nest)),
            tuple(entry.functions_of(nest)),
            nest.directive.fp == "exact",
            nest.span,
        )


def outlined(plan: Plan, source: str, directory: str = "") -> OutlinedPlan:
    """The plan with kernels in a file beside ``source``."""
    own = {f.name: getattr(plan, f.name) for f in fields(plan)}
    return OutlinedPlan(**own, source=source, directory=directory)


def outlined_file(name: str, source: str, parts: list[OpenmpPart]) -> OpenmpFile:
    """The file of some nests of a source.  Raises ``Refusal`` MDH417."""
    return openmp_file(name, beside.word(Path(source).name), parts)
