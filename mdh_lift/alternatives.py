"""Where else a search of a nest may begin: the model's best among what differs from its choice.

    Plan, Space -> points of the space, the cheapest first

A search goes on from good points by changing a few parameters.  Another way to share work among threads takes
other blocks as well, and with half of that changed a kernel is slow; so of each way the model's best is tried
(``lowering.choice.alternatives``), for one program of the nest at a time.
"""

from __future__ import annotations

from lowering.choice import alternatives
from lowering.point import Point, suffix_of
from lowering.space import Space
from mdh_lift.classes import SeveralPlan
from mdh_lift.gpu_plans import GpuPlan
from mdh_lift.kernels import Plan
from tuning.space import is_among


def alternatives_in(space: Space, plan: Plan | GpuPlan | SeveralPlan) -> list[Point]:
    """Of a plan for the CPU; others have none.  What the space does not have is left out."""
    if not isinstance(plan, Plan):
        return []
    default, found = plan.default, list[Point]()
    for k, (program, sizes) in enumerate(zip(plan.programs, plan.sizes, strict=True)):
        for items in alternatives(program, plan.machine, tuple(sizes.items())):
            point = {**default, **{name + suffix_of(k): value for name, value in items}}
            if is_among(space, point):
                found.append(point)
    return sorted(found, key=plan.estimate)
