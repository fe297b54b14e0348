"""The forms that a nest's programs get before they are lowered, where these pay at the sizes at hand.

    in     a lifted nest, values of its integer parameters
    out    a nest of the same meaning, and those of its fusions that are about programs it still has

Updates of host loops wait until a block of iterations is over (``lowering/delayed.py``,
``sums_in_blocks.py``), wavefronts lie in lines of arrays (``skewed.py``), scans of reductions are two
programs (``rows_apart.py``), sums over rows are in one sweep with what else reads these rows
(``one_sweep.py``).  Each form is proved where it is made; here is only whether it is worth its
copies.

Shown right by tests/test_delayed.py, test_sums_in_blocks.py, test_skewed.py and
test_one_sweep.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lifter.fusion import Fusion, fused
from lifter.lift import LiftedNest
from lifter.reductions import Rules, Update, infer
from lowering.boxed import boxed
from lowering.delayed import delayed
from lowering.facts import Facts, facts
from lowering.machine import Machine
from lowering.one_sweep import Sweep, one_sweep, sweeps_of
from lowering.outer_loop import union_of
from lowering.programs import Blocks, with_params
from lowering.right_looking import right_looking
from lowering.rows_apart import rows_apart
from lowering.skewed import skewed
from lowering.sums_in_blocks import sums_in_blocks
from lowering.traffic import bytes_of
from mdh_core.combine import CombineFunction
from mdh_core.expr import Expr, Operand, ScalarType
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Step, programs_of
from mdh_lift import iterations

BLOCK = 32  # iterations of a host loop whose updates of what lies outside of them are one product
COPIED_BLOCK = 24  # the same where these read copies: then iterations have more to do in their block
_FEWEST_BLOCKS = 3
_SKEW_PAYS = 8  # points of a loop for each cell that is copied to another layout or back
_DELAY_PAYS = 4096  # points of an iteration from which on
_COPIES_PAY = 16384  # the same where operands are copied
_WAYS = 8  # of a sweep, at least: as many as keep twice as many cores busy that the machine has
_SWEEP_PAYS = 0.2  # share of the bytes that is not read again
_BYTES_OF_POINT = 2  # of a program that memory ends, at least
_OF_L2 = 4  # blocks of a sweep's rows that fit into the second cache
_FEWEST_ROWS, _WHOLE = 4, 8  # of a block; from so many on, multiples


def formed_for(
    lifted: LiftedNest, params: Mapping[str, int], machine: Machine
) -> tuple[LiftedNest, tuple[Fusion, ...]]:
    """The nest for values of its integer parameters, and the fusions that are left."""
    before, lifted = lifted.program, _in_blocks(lifted, params)
    # fusions inside of loops whose updates are delayed were found for other programs
    fusions = tuple(f for f in lifted.fusions if not f.path or lifted.program[f.path[0]] is before[f.path[0]])
    if not fusions:
        return _with_sweeps(_with_rows_apart(_with_skewed(lifted, params)), params, machine), ()
    swept = _fused_in_sweeps(lifted, fusions, params, machine)
    return (lifted, fusions) if swept is None else (swept, ())


def _fused_in_sweeps(
    lifted: LiftedNest, fusions: Sequence[Fusion], params: Mapping[str, int], machine: Machine
) -> LiftedNest | None:
    """The nest with all fusions made and in sweeps; None where one of them is in none: a point may choose."""
    if any(f.path for f in fusions):
        return None
    steps = lifted.program
    for f in reversed(fusions):
        steps = fused(steps, f)
    unneeded = {name for f in fusions for name in f.unneeded}
    kept = tuple(b for b in lifted.temporaries if b.name not in unneeded)
    made = replace(lifted, program=steps, temporaries=kept, fusions=())
    swept = _with_sweeps(made, params, machine)
    left = {id(p) for p in programs_of(swept.program)}
    return None if any(id(f.program) in left for f in fusions) else swept


def _with_sweeps(lifted: LiftedNest, params: Mapping[str, int], machine: Machine) -> LiftedNest:
    """The nest with neighbours in one sweep where that spares reading rows from far."""
    taken = _names(lifted)
    steps, more, behind = list[Step](), list[Buffer](), 0
    for sweep in sweeps_of(lifted.program):
        steps += lifted.program[behind : sweep.first]
        behind = sweep.first + len(sweep.programs)
        rows = _rows_of_block(sweep, [facts(p, p.sizes(dict(params))) for p in sweep.programs], machine)
        if not rows:
            steps += sweep.programs
            continue
        found = one_sweep(sweep, max(_WAYS, 2 * machine.cores), rows, taken)
        steps += found.steps
        more += found.arrays
        taken |= iterations.iterators_of(steps) | {b.name for b in more}
    steps += lifted.program[behind:]
    return replace(lifted, program=tuple(steps), temporaries=(*lifted.temporaries, *more))


def _rows_of_block(sweep: Sweep, own: Sequence[Facts], machine: Machine) -> int:
    """Rows of a sweep's blocks, which stay in the second cache; 0: it does not pay."""
    size, moved = own[0].sizes[sweep.dims[0]], sum(sum(bytes_of(f).values()) for f in own)
    once = sum(union_of(own).values())
    if once <= machine.cores * machine.l2 or moved - once < _SWEEP_PAYS * moved:
        return 0
    if any(f.points * _BYTES_OF_POINT > sum(bytes_of(f).values()) for f in own):
        return 0
    rows = int(machine.l2 / _OF_L2 / (once / size))
    rows = min(rows, size // (4 * max(_WAYS, 2 * machine.cores)))
    if rows >= _WHOLE:
        rows -= rows % _WHOLE
    return rows if rows >= _FEWEST_ROWS else 0


def _with_skewed(lifted: LiftedNest, params: Mapping[str, int]) -> LiftedNest:
    """The nest with wavefronts of the outermost host loops in lines of arrays, where that pays."""
    taken = _names(lifted)
    steps: list[Step] = []
    more: list[Buffer] = []
    for s in lifted.program:
        found = skewed(boxed(s) or s, taken) if isinstance(s, HostLoop) else None
        if found is None or _points_per_cell(s, found.copies, params) < _SKEW_PAYS:
            steps.append(s)
            continue
        steps += [*found.before, found.loop, *found.behind]
        more += found.arrays
        taken |= {b.name for b in found.arrays}
    return replace(lifted, program=tuple(steps), temporaries=(*lifted.temporaries, *more))


def _points_per_cell(s: Step, copies: Sequence[Step], params: Mapping[str, int]) -> float:
    return iterations.points((s,), params) / max(1.0, iterations.points(copies, params))


def _with_rows_apart(lifted: LiftedNest) -> LiftedNest:
    """The nest with scans of reductions as two programs each, those outside of host loops."""
    steps: list[Step] = []
    more: list[Buffer] = []
    for k, s in enumerate(lifted.program):
        apart = rows_apart(s, f"_s{k}") if isinstance(s, MdhProgram) else None
        if apart is None:
            steps.append(s)
            continue
        steps += apart[:2]
        more += apart[2]
    return replace(lifted, program=tuple(steps), temporaries=(*lifted.temporaries, *more))


def _in_blocks(lifted: LiftedNest, params: Mapping[str, int]) -> LiftedNest:
    """The nest, with updates of the outermost host loops delayed where these and the arrays are long."""
    taken = _names(lifted)
    steps: list[Step] = []
    more: list[Buffer] = []
    for s in lifted.program:
        found = _blocked(s, params, taken) if isinstance(s, HostLoop) else None
        steps.append(s if found is None else with_params(found.loop, lifted.nest.params))
        more += () if found is None else found.arrays
        taken |= iterations.iterators_of(steps[-1:]) | {b.name for b in more}
    return replace(lifted, program=tuple(steps), temporaries=(*lifted.temporaries, *more))


def _names(lifted: LiftedNest) -> set[str]:
    """Of parameters, arrays and host loops."""
    names = {x.name for x in lifted.nest.params} | {b.name for b in lifted.nest.buffers}
    return names | {b.name for b in lifted.temporaries} | iterations.iterators_of(lifted.program)


def _blocked(loop: HostLoop, params: Mapping[str, int], taken: set[str]) -> Blocks | None:
    times = loop.size.evaluate(dict(params))
    points = iterations.points((loop,), params) / max(times, 1)
    if times < _FEWEST_BLOCKS * BLOCK or points < _DELAY_PAYS:
        return None
    looking = right_looking(loop, taken) or loop
    found = delayed(looking, BLOCK, taken, combination)
    if found is not None and found.arrays:
        found = delayed(looking, COPIED_BLOCK, taken, combination) if points >= _COPIES_PAY else None
    return found or sums_in_blocks(loop, BLOCK, taken)


def combination(p: MdhProgram, value: Expr, cell: Operand) -> tuple[CombineFunction, Expr] | None:
    """The new value of a cell as an operator of the lifter's, and what the cell is combined with.

    Sums and products that are rounded are not among them: ``delayed`` knows those that keep their roundings.
    """
    found = infer(value, cell, Rules(exact=True, functions={f.name: f for f in p.functions}))
    if not isinstance(found, Update):
        return None
    function, t = found.function, cell.type
    if function.name in ("min", "max") and isinstance(t, ScalarType) and t.is_float:
        allowed = p.fp != "exact"  # which of the values a NaN replaces depends on their grouping
    else:
        allowed = function.exact
    return (function, found.element) if allowed else None
