"""The search space of a nest: the parameters of a point (see ``point``) and the values that they may have.

What is not here is built in: the reductions of mdh.md 7 (D1 = S1 = R1, D2 = S2 = R2, whole tiles are copied).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lowering.ahead import PAGE
from lowering.choice import alternatives, default_point
from lowering.facts import (
    FEWEST_SHARED,
    Facts,
    facts,
    fetchable,
    follows_pages,
    follows_points,
    follows_rows,
    has_records,
    histogram_threads,
    keeps_to_reads,
    lane_counts,
    may_be_aligned,
    packable,
    row_counts,
    row_dims,
    thread_choices,
    vector_candidates,
    vector_length,
    written_past,
)
from lowering.histogram import POINTS_AHEAD, one_hot
from lowering.joined import joined_rows
from lowering.keyed import keyed
from lowering.machine import Machine
from lowering.parameters import input_buffers
from lowering.pieces import may_have_pieces
from lowering.point import Value, suffix_of
from mdh_core.ir import MdhProgram


@dataclass(frozen=True, slots=True)
class Space:
    """Names with their values, and Python expressions over the names that legal points satisfy.

    ``idle``: a name with the expression without which its value does nothing.  They are restrictions too, so
    that no search meets the same code twice; a value given by hand that does nothing is a mistake
    (``mdh_lift.given``).
    """

    parameters: tuple[tuple[str, tuple[Value, ...]], ...]
    rules: tuple[str, ...] = ()
    idle: tuple[tuple[str, str], ...] = ()

    @property
    def restrictions(self) -> tuple[str, ...]:
        """What legal points satisfy."""
        return (*self.rules, *(rule for _, rule in self.idle))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.parameters)

    @property
    def cartesian_size(self) -> int:
        """Number of combinations, legal or not."""
        return math.prod(len(values) for _, values in self.parameters)

    def key(self, point: Mapping[str, Value]) -> tuple[Value, ...]:
        """The point's values in the order of the parameters."""
        return tuple(point[name] for name in self.names)


def _space(f: Facts, machine: Machine) -> Space:
    form = one_hot(f.program)
    if form is not None:
        shared = follows_points(f, form, machine)
        threads = ("threads", histogram_threads(f, form))
        if not shared:
            return Space((threads,))
        alone = ("ahead", f"threads == '{shared}' or ahead == 0")
        return Space((threads, ("ahead", POINTS_AHEAD)), idle=(alone,))
    v = vector_length(f, machine)
    vectors = vector_candidates(f)
    parameters: list[tuple[str, tuple[int | str, ...]]] = [
        ("threads", thread_choices(f)),
        ("vector", vectors),
        ("lanes", (1, *lane_counts(f, v)) if vectors != ("-",) else (1,)),
    ]
    restrictions = ["vector == '-' or lanes > 1"]
    idle = [("lanes", "vector != '-' or lanes == 1")]
    rows = row_dims(f)
    for d in rows:
        parameters.append((f"rows_{d}", (1, *row_counts(f, d))))
        idle.append((f"rows_{d}", f"vector != '{d}' or rows_{d} == 1"))
    if rows:
        product = "*".join(f"rows_{d}" for d in rows)
        restrictions.append(f"{product}*lanes <= {(machine.registers - 4) * v} or vector == '-'")
        restrictions.append(f"{product} <= {machine.registers - 4}")
    for d in f.pw:
        n = f.sizes[d]
        unrolls = [1, 2, 4, 8] if n > 8 else sorted({1, n}) if n else [1]
        if keeps_to_reads(f) and d != f.pw[-1]:
            unrolls = [1]
        parameters.append((f"unroll_{d}", tuple(unrolls)))
        blocks = [0]
        if 1 < n <= 512:
            blocks.append(n)
        if n > 256:
            blocks += [b for b in (128, 256, 512, 1024, 4096, 16384, 65536) if b < n]
        parameters.append((f"block_{d}", tuple(blocks)))
        restrictions.append(f"block_{d} == 0 or block_{d} % unroll_{d} == 0")
        if d in {x for c in thread_choices(f) for x in c.split(",")}:
            restrictions.append(f"threads != '{d}' or block_{d} > 0 or {n} <= {FEWEST_SHARED}")
            if f.cc and n > FEWEST_SHARED:
                parameters.append((f"visit_{d}", (0, 2, 4, 8, 16, 32)))
                restrictions.append(f"visit_{d} % unroll_{d} == 0")
                idle.append((f"visit_{d}", f"visit_{d} == 0 or threads == '{d}' and visit_{d} < block_{d}"))
        if has_records(f):
            restrictions.append(f"vector == '-' or block_{d} == 0 and threads != '{d}'")
    for d in f.cc:
        sizes = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096)
        fitting = [b for b in sizes if b <= f.sizes[d]]
        fitting = [b for b in fitting if b * 256 >= f.sizes[d] or b == fitting[-1]] or [1]
        parameters.append((f"block_{d}", tuple(dict.fromkeys((*fitting, _balanced(f.sizes[d], machine))))))
    inner = [d for d in f.cc if f.sizes[d] > 1]
    orders = min(math.factorial(len(inner)), 6) or 1
    parameters.append(("order", tuple(range(orders))))
    for b in input_buffers(f.program):
        if f.pw and packable(f, b) and not f.ps:
            parameters.append((f"pack_{b}", ("no", "block", "row", "panel")))
    past = ((b, (0, 1, 2) if joined_rows(f.program, b) else (0, 1)) for b in written_past(f, machine))
    parameters += [(f"past_{b}", values) for b, values in past]
    parameters += [(f"fetch_{b}", tuple(range(7 if may_have_pieces(f, b) else 6))) for b in fetchable(f)]
    if follows_rows(f, machine):
        parameters.append(("ahead", (0, 512, 1024, 2048)))
        idle.append(("ahead", "vector != '-' or ahead == 0"))
    elif follows_pages(f, machine):
        parameters.append(("ahead", (0, PAGE, 2 * PAGE, 3 * PAGE)))
        along = [d for d in vectors if d in f.pw]
        idle.append(("ahead", " or ".join([*(f"vector == '{d}'" for d in along), "ahead == 0"])))
    if may_be_aligned(f):
        parameters.append(("aligned", (0, 1)))
        idle.append(("aligned", "vector != '-' or aligned == 0"))
    if keyed(f.program) is not None:
        parameters.append(("table", (0, 1)))
    return Space(tuple(parameters), tuple(restrictions), tuple(idle))


def _balanced(n: int, machine: Machine) -> int:
    """A block that gives every core the same number of elements."""
    return max(1, -(-n // machine.cores))


def tuning_space(
    programs: tuple[MdhProgram, ...], machine: Machine, sizes: tuple[dict[str, int], ...]
) -> Space:
    """The space of a nest for given sizes (one dict per program, dimension -> extent)."""
    parameters: list[tuple[str, tuple[int | str, ...]]] = []
    rules: list[str] = []
    idle: list[tuple[str, str]] = []
    for k, (program, n) in enumerate(zip(programs, sizes, strict=True)):
        one = _space(facts(program, n), machine)
        suffix = suffix_of(k)
        names = sorted((name for name, _ in one.parameters), key=len, reverse=True)
        chosen = [default_point((program,), machine, (n,))]
        chosen += map(dict, alternatives(program, machine, tuple(n.items())))
        for name, values in one.parameters:  # what the model chooses is in the space
            extra = (x[name] for x in chosen if name in x)
            parameters.append((name + suffix, tuple(dict.fromkeys((*values, *extra)))))
        rules += [_suffixed(r, names, suffix) for r in one.rules]
        idle += [(name + suffix, _suffixed(r, names, suffix)) for name, r in one.idle]
    return Space(tuple(parameters), tuple(rules), tuple(idle))


def _suffixed(restriction: str, names: list[str], suffix: str) -> str:
    if not suffix:
        return restriction
    pattern = r"(?<!['\w])(" + "|".join(map(re.escape, names)) + r")\b(?!')"
    return re.sub(pattern, lambda m: m.group(1) + suffix, restriction)
