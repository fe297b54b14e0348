"""Several kernels of one nest, for different sizes, behind one call.

    sizes(n=64) sizes(n=4096)   =>   n >= 32 && n <= 128 ? f_0_mdh_1(n, ...)
                                   : n >= 2048 && n <= 8192 ? f_0_mdh_2(n, ...) : f_0_mdh(n, ...)

A `sizes` clause stands for the sizes from half to twice those that it names; where two clauses hold, the
first one counts.  The generic kernel is the cost model's choice for usual sizes.  Which kernel runs is a
matter of speed only, as each of them is right for every size: ``SeveralPlan`` makes the candidate that has
them all, which is compared and timed as one before it is spliced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from emit.gpu_file import GpuFile, GpuPart, gpu_file
from emit.openmp_file import OpenmpFile, OpenmpPart
from emit.request import Kernel
from lifter.lift import LiftedNest
from lowering.parameters import to_json
from lowering.point import Point
from lowering.space import Space
from mdh_lift import kernels, nest_sizes
from mdh_lift import subject as subjects
from mdh_lift.gpu_plans import GpuPlan
from mdh_lift.kernels import Plan, Variant
from mdh_lift.outlined import OutlinedPlan, outlined_file
from tuning.harness import Candidate

Clause = Mapping[str, int]
AnyPlan = Plan | GpuPlan
WITHIN = 2  # a clause stands for sizes up to this factor away


def clauses_of(lifted: LiftedNest) -> list[Clause]:
    """The different `sizes` clauses of a nest, in their order."""
    found = [dict(clause) for clause in lifted.nest.directive.sizes]
    return [c for k, c in enumerate(found) if c and c not in found[:k]]


def only_clause(lifted: LiftedNest, clause: Clause | None) -> LiftedNest:
    """The nest as if this were its only `sizes` clause; without one, for usual sizes."""
    own = lifted.nest
    directive = replace(own.directive, sizes=() if clause is None else (tuple(clause.items()),))
    return replace(lifted, nest=replace(own, directive=directive))


def classes_of(lifted: LiftedNest) -> list[tuple[dict[str, int], Clause | None]]:
    """The sizes that each class is tuned for, and its clause; None for the class of other sizes, which is one
    of the clauses' where that names the usual sizes."""
    found: list[tuple[dict[str, int], Clause | None]] = []
    for clause in (*clauses_of(lifted), None):
        own = only_clause(lifted, clause)
        fit = subjects.fitting if clause is None else subjects.repaired
        variables = fit(own, nest_sizes.sizes_of(own))
        same = next((k for k, (known, _) in enumerate(found) if known == variables), None)
        if variables is not None and same is None:
            found.append((variables, clause))
        elif same is not None and clause is None:
            found[same] = (found[same][0], None)
    return found


def condition(clause: Clause, texts: Mapping[str, str]) -> str:
    """C text that holds for the sizes of a clause's class; ``texts``: of what it names, where they differ.

    >>> condition({"n": 5}, {"n": "g->n"})
    '(g->n) >= 3 && (g->n) <= 10'
    """

    def bounded(name: str, value: int) -> str:
        text = texts.get(name, name)
        text = text if text.isidentifier() else f"({text})"
        return f"{text} >= {-(-value // WITHIN)} && {text} <= {value * WITHIN}"

    return " && ".join(bounded(name, value) for name, value in clause.items())


def variant(k: int, clause: Clause | None) -> Variant:
    """The k-th kernel, from 1; without a clause the generic one."""
    if clause is None:
        return Variant("", ("for sizes of no class",))
    return Variant(f"_{k}", (f"for {condition(clause, {})}",))


@dataclass(frozen=True, slots=True)
class Chosen:
    """A kernel: its plan at a point, and C text of when it runs; empty for the generic one, which is last."""

    plan: AnyPlan
    point: Point
    condition: str = ""


@dataclass(frozen=True, slots=True)
class SeveralPlan:
    """The kernels of a nest as one plan that has nothing to choose; its only point is empty."""

    chosen: tuple[Chosen, ...]

    @property
    def lifted(self) -> LiftedNest:
        return self.chosen[0].plan.lifted

    @property
    def params(self) -> Mapping[str, int]:
        return self.chosen[0].plan.params

    @property
    def default(self) -> Point:
        """All points as one, each in its own names."""
        return {f"{name}@{k}": v for k, c in enumerate(self.chosen) for name, v in c.point.items()}

    @property
    def space(self) -> Space:
        return Space((("variants", (len(self.chosen),)),))

    def expression(self, point: Point) -> str:
        first = self.chosen[0]
        return first.plan.expression(first.point)

    def dispatch(self, calls: Sequence[str]) -> str:
        """One call out of those of the kernels; 0, the original runs, where none is for a size."""
        text = "" if not self.chosen[-1].condition else "0"
        for c, call in reversed(list(zip(self.chosen, calls, strict=True))):
            rest = f"{c.condition}\n        ? {_operand(call)}\n        : {text}"
            text = rest if c.condition else _operand(call)
        return text

    def kernel(self, point: Point, described: bool = True) -> Kernel:
        """Of plans for the processor: all texts, and the call."""
        found = [c.plan.kernel(c.point, described) for c in self.chosen if isinstance(c.plan, Plan)]
        text = "\n".join(k.text.strip("\n") for k in found)
        return Kernel(found[0].name, text, self.dispatch([k.call for k in found]))

    def parts(self, described: bool = True) -> tuple[GpuPart | OpenmpPart, ...]:
        """What the kernels have in the file beside the source; empty where they stand in it."""
        return tuple(
            c.plan.part(c.point, described) for c in self.chosen if isinstance(c.plan, GpuPlan | OutlinedPlan)
        )

    def candidate(self, point: Point, described: bool = False) -> Candidate:
        after = kernels.after_text(self.lifted)
        about = json.dumps([[to_json(x) for x in c.plan.configurations(c.point)] for c in self.chosen])
        parts = self.parts(described)
        if not parts:
            kernel = self.kernel(point, described)
            return Candidate(kernel.text, kernel.call, after, about)
        file, call = self.file(parts[0].name, described)
        return Candidate(file.header, call, after, about, file.text)

    def file(self, name: str, described: bool = True) -> tuple[GpuFile | OpenmpFile, str]:
        """The file of kernels that do not stand in the source, and the call."""
        parts, plan = self.parts(described), self.chosen[0].plan
        call = self.dispatch([p.call for p in parts])
        if isinstance(plan, GpuPlan):
            return gpu_file(name, [p for p in parts if isinstance(p, GpuPart)], plan.target), call
        assert isinstance(plan, OutlinedPlan)
        return outlined_file(name, plan.source, [p for p in parts if isinstance(p, OpenmpPart)]), call


def _operand(call: str) -> str:
    return f"({call})" if " && " in call else call


def with_variant(plan: AnyPlan, k: int, clause: Clause | None) -> AnyPlan:
    """The plan whose kernel is the k-th of several."""
    return replace(plan, variant=variant(k, clause))


def several(made: Sequence[tuple[AnyPlan, Point, Clause | None]]) -> SeveralPlan:
    """The plans that are kept, in the order of their clauses; one without a clause is the generic one."""
    assert sum(clause is None for *_, clause in made) <= 1

    def chosen() -> Iterator[Chosen]:
        for k, (plan, point, clause) in enumerate(sorted(made, key=lambda m: m[2] is None), 1):
            names = {p.name: p.value for p in plan.lifted.nest.params if p.value}
            text = "" if clause is None else condition(clause, names)
            yield Chosen(with_variant(plan, k, clause), point, text)

    return SeveralPlan(tuple(chosen()))
