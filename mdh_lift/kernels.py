"""From a lifted nest to the text that is spliced: sizes to tune for, the kernel, what runs after it."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from emit.c_text import affine_text
from emit.host_text import Loops, leaves
from emit.render import emit_openmp
from emit.request import Kernel, KernelRequest
from lifter.fusion import Fusion, fused, neighbours
from lifter.lift import FinalIterator, LiftedNest
from lowering.affinity import crossing, nearest, shared_otherwise
from lowering.ahead import read_again
from lowering.choice import default_point
from lowering.cost import estimate, gains_by_constants
from lowering.facts import facts
from lowering.host_tiles import STRIP, HostTiles, is_shaped, lie_apart, skew_of, usual_rows, usual_tiles
from lowering.lower import can_stay_in_place
from lowering.machine import Machine
from lowering.outer_loop import Run, bytes_saved, in_one_loop, runs_of, union_of, usual_width
from lowering.parameters import Configuration, to_json
from lowering.point import Point, configuration_at, is_divided, own_values, round_up, suffix_of, tile_of
from lowering.space import Space, tuning_space
from lowering.traffic import bytes_of
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import Affine, ScalarType
from mdh_core.ir import HostLoop, MdhProgram, Param, Size, Step, programs_of
from mdh_core.show import c_style, show, statements
from mdh_lift import iterations
from mdh_lift.c_value import NotAnInteger
from mdh_lift.forms import formed_for
from mdh_lift.nest_sizes import all_stated, parameter_values, shaping_of, sizes_of
from tuning.ceilings import known_machine
from tuning.harness import Candidate

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
TUNED = 3  # programs of a nest that are searched at once
MATTERS = 0.05  # share of the time from which on a program is searched
_TILES = ("width_", "steps_", "strip_")  # parameters of host loops
_FUSE = "fuse_"  # whether neighbours are one program
_REGION = "region_"  # whether one parallel region is around a host loop
KNOWN = "known"  # whether the sizes that are tuned for have a function, with constants in their places
_OUTER = "outer_"  # positions of the parts that run through neighbouring programs; 0: one after the other
_NEXT = "next_"  # whether what the next of those parts reads is fetched
_OF_NEST = (*_TILES, _FUSE, _REGION, _OUTER, _NEXT, KNOWN)
_FINER = 12  # times as many blocks of sizes that change
_THREADS_PAY = 8192  # points from which on a program that runs often should begin a parallel region
_SOME = 8  # positions of a part to try where the model sees no gain
_OUTER_PAYS = 0.1  # share of the time that one loop for neighbours has to save in traffic
_WHOLE = ("block", "visit")  # parameters of a reduced dimension that are 0 where it is one block
_SHORT = 2.5e-5  # seconds of a program below which a region for each run costs more than a few percent


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel of several: what its name ends in, and a line of its header that says when it runs."""

    suffix: str = ""
    notes: tuple[str, ...] = ()


ALONE = Variant()


@dataclass(frozen=True, slots=True)
class Plan:
    """A lifted nest, values of its integer parameters, and the extents that follow (one dict per program).

    ``fusions``: neighbours of which a point says whether they are one program (``fuse_<k>``).  These programs
    are numbered behind those of the nest.  ``formed`` gives the plan in which the choice is made.
    ``macros``: names that mean something else in the file, for the kernel to avoid.
    ``variant``: of several kernels of the nest, for different sizes.  ``stated``: somebody named these sizes.
    """

    lifted: LiftedNest
    machine: Machine
    params: Mapping[str, int]
    sizes: tuple[dict[str, int], ...]
    lines: str = ""  # "gemm.c:12-18"
    macros: frozenset[str] = frozenset()
    fusions: tuple[Fusion, ...] = ()
    variant: Variant = ALONE
    stated: bool = False

    @property
    def name(self) -> str:
        """Of the kernel's function."""
        return kernel_name(self.lifted.nest.function, self.lifted.nest.label) + self.variant.suffix

    @property
    def apart(self) -> bool:
        """Whether kernels have a file of their own."""
        return False

    @property
    def programs(self) -> tuple[MdhProgram, ...]:
        return (*self.lifted.programs, *(f.program for f in self.fusions))

    def formed(self, point: Point) -> tuple[Plan, Point]:
        """The plan with the fusions of a point, and no others to choose; and the point for its programs."""
        if not self.fusions:
            return self, point
        plan, numbers = self._form(point)
        own: Point = {n: v for n, v in point.items() if n.startswith(_OF_NEST)}
        for new, old in enumerate(numbers):
            mine = own_values(point, old).items()
            own |= {n + suffix_of(new): v for n, v in mine if not n.startswith(_OF_NEST)}
        return plan, own

    def _form(self, point: Point) -> tuple[Plan, list[int]]:
        """The plan with the fusions of a point, and the numbers here of its programs."""
        numbers = {id(p): k for k, p in enumerate(self.programs)}
        steps = self.lifted.program
        for k in reversed(range(len(self.fusions))):
            steps = fused(steps, self.fusions[k]) if point.get(f"{_FUSE}{k}") else steps
        used = {b.name for leaf, _ in leaves(steps) for b in leaf.buffers}
        kept = tuple(b for b in self.lifted.temporaries if b.name in used)
        lifted = replace(self.lifted, program=steps, temporaries=kept, fusions=())
        mine = [numbers[id(p)] for p in lifted.programs]
        sizes = tuple(self.sizes[k] for k in mine)
        return replace(self, lifted=lifted, sizes=sizes, fusions=()), mine

    def _parts(self, k: int) -> list[int]:
        """The numbers of the programs that a fusion joins."""
        numbers = {id(p): n for n, p in enumerate(self.programs)}
        return [numbers[id(p)] for p in neighbours(self.lifted.program, self.fusions[k])]

    @property
    def default(self) -> Point:
        """The cost model's first choice."""
        point: Point = {}
        for k, (program, extents) in enumerate(zip(self.programs, self.sizes, strict=True)):
            own = default_point((program,), self.machine, (extents,))
            if "threads" in own and self._loops_around(k) and math.prod(extents.values()) < _THREADS_PAY:
                own["threads"] = ""
            self._make_finer(k, own)
            point |= {name + suffix_of(k): value for name, value in own.items()}
        point |= {f"{_FUSE}{k}": int(self._pays(k, point)) for k in range(len(self.fusions))}
        if self.stated and self.known:
            point[KNOWN] = int(self._gains_by_constants(point))
        plan, numbers = self._form(point)
        point |= plan._near(self.formed(point)[1], numbers)
        for k, tiles in enumerate(plan._usual_host_tiles()):
            if tiles is not None:
                point |= {f"width_{k}": tiles.width, f"steps_{k}": tiles.steps or 0}
                point[f"strip_{k}"] = tiles.strip or 0
                point |= plan._rows_of_cut(k, tiles, numbers, point)
                point |= plan._without_memory(k, tiles, numbers, point)
        point |= plan._usual_outer(self.formed(point)[1], numbers)
        return point | plan._usual_regions(self.formed(point)[1])

    def _near(self, point: Point, numbers: Sequence[int]) -> Point:
        """Of programs in one host loop, what lets threads find what they wrote (``lowering.affinity``).

        ``numbers``: of the programs, in names of parameters.
        """
        found: Point = {}
        for mine in iterations.together(self.lifted.program):
            own = [facts(self.programs[k], self.sizes[k]) for k in mine]
            usual = [own_values(point, k) for k in mine]
            others = [shared_otherwise(f, self.machine, x) for f, x in zip(own, usual, strict=True)]
            for k, other in ((k, x) for k, more in zip(mine, others, strict=True) for x in more):
                self._make_finer(k, other)
            for k, new, old in zip(mine, nearest(own, usual, others, self.machine), usual, strict=True):
                if new != old:
                    found |= {x + suffix_of(numbers[k]): v for x, v in new.items()}
        return found

    def _usual_outer(self, point: Point, numbers: Sequence[int]) -> Point:
        """Widths of parts that run through neighbouring programs, and what is stored past the caches then.

        ``numbers``: of the programs, in names of parameters.
        """
        found: Point = {}
        for k, run in enumerate(runs_of(self.lifted.program)):
            mine = self._numbers_of(run)
            own = [facts(self.programs[n], self.sizes[n]) for n in mine]
            copies = any(point[x] != "no" for x in point if x.startswith("pack_") and _number(x) in mine)
            saved = bytes_saved(own, self.machine) / self.machine.bandwidth
            costs = self._costs(point)
            pays = not copies and saved > _OUTER_PAYS * sum(costs[n] for n in mine)
            width = usual_width(run, own, self.machine) if pays else 0
            found[f"{_OUTER}{k}"] = width
            found[f"{_NEXT}{k}"] = int(width > 0 and any(read_again(run.programs, run.dims)))
            again = Counter(b for f in own for b in bytes_of(f))
            near = {f"past_{b}": 0 for b, times in again.items() if times > 1}
            for n, d in zip(mine, run.dims, strict=True) if width else ():
                usual = own_values(point, n)
                part = self._of_part(usual, n, d, width)
                part |= {x: v for x, v in near.items() if x in usual}
                found |= {x + suffix_of(numbers[n]): v for x, v in part.items()}
        return found

    def _of_part(self, usual: Point, n: int, cut: str, width: int) -> Point:
        """What a program takes instead of its usual values where one thread has so many positions of ``cut``.

        The program before it has read its rows, and a core waits where small pages end only if memory is what
        it reads: none are side by side that share nothing, unless that needs copies.  Tiles have no more rows
        than a part, or would never be whole.  Reductions that threads share would need memory for results.
        """
        machine = replace(self.machine, huge_pages=True)
        part = default_point((self.programs[n],), machine, (self.sizes[n],))
        if any(v != "no" for x, v in part.items() if x.startswith("pack_")):
            part = {}
        own, reduced = usual | part, {d.name for d in self.programs[n].hom.dims_of("pw")}
        if not reduced.isdisjoint(str(own.get("threads", "")).split(",")):
            part["threads"] = cut
        if int(own.get(f"rows_{cut}", 1)) > width:
            part |= {f"rows_{cut}": 1} | ({"ahead": 0} if "ahead" in own else {})  # few rows need no fetching
        return part

    def _numbers_of(self, run: Run) -> list[int]:
        numbers = {id(p): n for n, p in enumerate(self.programs)}
        return [numbers[id(p)] for p in run.programs]

    @property
    def known(self) -> tuple[tuple[str, int], ...]:
        """Parameters that shape the nest, with their values."""
        shaping = shaping_of(self.lifted)
        return tuple((name, n) for name, n in self.params.items() if name in shaping)

    def _gains_by_constants(self, point: Point) -> bool:
        """Whether they make the program faster that takes most of the time."""
        costs = self._costs(point)
        k = costs.index(max(costs))
        return gains_by_constants(facts(self.programs[k], self.sizes[k]), own_values(point, k))

    @property
    def starts(self) -> list[Point]:
        """Where a search begins: the default, and the same with each fusion the other way."""
        point = self.default
        fusions = (f"{_FUSE}{k}" for k in range(len(self.fusions)))
        return [point, *({**point, name: 1 - int(point[name])} for name in fusions)]

    def _pays(self, k: int, point: Point) -> bool:
        """Whether a fusion takes less time, and leaves host loops the tiles that they may have."""
        f = self.fusions[k]
        apart, joint = (self._form({f"{_FUSE}{k}": n})[0].lifted.program for n in (0, 1))
        loops = zip(*(iterations.host_loops(s, self.params) for s in (apart, joint)), strict=True)
        if f.path and any(skew_of(a) is not None and skew_of(b) is None for (a, _), (b, _) in loops):
            return False
        costs = self._costs(point)
        return costs[len(self.lifted.programs) + k] < sum(costs[n] for n in self._parts(k))

    def _usual_regions(self, point: Point) -> Point:
        """Whether one parallel region is around each of the outermost host loops."""
        tiled = self.host_tiles(point)
        outermost = {id(s) for s in self.lifted.program}
        loops = enumerate(x for x, _ in iterations.host_loops(self.lifted.program, self.params))
        return {
            f"{_REGION}{k}": int(tiled[k] is None and self._is_short(loop, point))
            for k, loop in loops if id(loop) in outermost
        }  # fmt: skip

    def _is_short(self, loop: HostLoop, point: Point) -> bool:
        """Whether one region around a loop pays: threads share all that is in it, for a short time each.

        What one thread does alone is followed by a barrier that it does not need without the region.
        """
        inside = {id(leaf) for leaf, _ in leaves((loop,))}
        own = [k for k, p in enumerate(self.programs) if id(p) in inside]
        if len(own) < len(inside) or not all(point.get(f"threads{suffix_of(k)}") for k in own):
            return False
        costs, runs = self._costs(point), iterations.runs(self.lifted.program, self.params)
        return sum(costs[k] for k in own) < _SHORT * sum(runs[k] for k in own)

    def _rows_of_cut(self, k: int, tiles: HostTiles, numbers: Sequence[int], point: Point) -> Point:
        """Rows of the register tiles in the dimension that is cut.

        ``numbers``: for the programs in the order of the text.
        """
        loop = [x for x, _ in iterations.host_loops(self.lifted.program, self.params)][k]
        number = {id(p): n for p, n in zip(self.programs, numbers, strict=True)}
        found: Point = {}
        for p, cut in zip(loop.body, tiles.skew.dims, strict=True):
            if isinstance(p, MdhProgram) and cut is not None:
                n, d = number[id(p)], p.hom.dims[cut].name
                name, own = f"rows_{d}{suffix_of(n)}", own_values(point, n)
                sizes = self.sizes[next(k for k, x in enumerate(self.programs) if x is p)]
                if name in point:
                    found[name] = usual_rows(facts(p, {**sizes, d: tiles.width}), self.machine, tiles, d, own)
        return found

    def _without_memory(self, k: int, tiles: HostTiles, numbers: Sequence[int], point: Point) -> Point:
        """Reductions as a whole where their cells cannot hold what is unfinished, and nothing travels.

        Programs that need memory of their own are in no tiles, and these are why the loop is as it is.
        ``numbers``: for the programs in the order of the text.
        """
        loop = [x for x, _ in iterations.host_loops(self.lifted.program, self.params)][k]
        number = {id(p): n for p, n in zip(self.programs, numbers, strict=True)}
        found: Point = {}
        for p in loop.body if tiles.skew.independent else ():
            if isinstance(p, MdhProgram) and p.hom.dims_of("pw") and not can_stay_in_place(p):
                names = (f"{x}_{d.name}" for d in p.hom.dims_of("pw") for x in _WHOLE)
                own = (name + suffix_of(number[id(p)]) for name in names)
                found |= {name: 0 for name in own if name in point}
        return found

    def _usual_host_tiles(self) -> list[HostTiles | None]:
        """Of all host loops, in the order of the text."""
        found: list[HostTiles | None] = []
        numbers = {id(p): k for k, p in enumerate(self.programs)}
        for loop, times in iterations.host_loops(self.lifted.program, self.params):
            skew, tiles = skew_of(loop), None
            if skew is not None:
                own = [p for p in loop.body if isinstance(p, MdhProgram)]
                sizes = [self.sizes[numbers[id(p)]] for p in own]
                cut = [
                    n[p.hom.dims[k].name]
                    for p, n, k in zip(own, sizes, skew.dims, strict=True) if k is not None
                ]  # fmt: skip
                touched = union_of([facts(p, n) for p, n in zip(own, sizes, strict=True)])
                each = sum(touched.values()) / max(1, *cut)
                shaped, apart = is_shaped(loop, skew), lie_apart(own, skew, touched)
                tiles = usual_tiles(skew, max(cut), each, times, self.machine, shaped, apart)
            found.append(tiles)
        return found

    def host_tiles(self, point: Point) -> tuple[HostTiles | None, ...]:
        """Tiles of the host loops at a point; as many iterations as fit into the width."""
        found: list[HostTiles | None] = []
        for k, (loop, _) in enumerate(iterations.host_loops(self.lifted.program, self.params)):
            width, steps = int(point.get(f"width_{k}", 0)), int(point.get(f"steps_{k}", 0))
            skew = skew_of(loop) if width else None
            if skew is None:
                found.append(None)
                continue
            if not skew.independent:
                while steps > 1 and skew.least_width(steps) > width:
                    steps -= 1
            fits = skew.independent or (steps > 1 and skew.least_width(steps) <= width)
            strip = int(point.get(f"strip_{k}", 0)) or None
            cut = HostTiles(skew, width, None) if skew.independent else HostTiles(skew, width, steps, strip)
            found.append(cut if fits else None)
        return tuple(found)

    def regions(self, point: Point) -> tuple[bool, ...]:
        """Of the host loops: is one parallel region around it at a point?"""
        loops = iterations.host_loops(self.lifted.program, self.params)
        return tuple(bool(point.get(f"{_REGION}{k}", 0)) for k, _ in enumerate(loops))

    def _make_finer(self, k: int, own: Point) -> None:
        """Smaller blocks for threads where sizes change in host loops: enough in every iteration.

        Where parts are cut at run time, there are.
        """
        program, changing = self.programs[k], {x.iterator for x in self._loops_around(k)}
        for d in str(own.get("threads", "")).split(","):
            if not d or program.op(d).kind != "cc" or is_divided(facts(program, self.sizes[k]), d):
                continue
            if program.dim(d).size.span.names & changing:
                tile = tile_of(own, d)
                own[f"block_{d}"] = max(tile, round_up(int(own[f"block_{d}"]) // _FINER, tile))

    def _loops_around(self, k: int) -> Loops:
        """The host loops around a program."""
        placed = iterations.placed(self.lifted.program)
        return placed[k if k < len(placed) else self._parts(k - len(placed))[0]][1]

    @property
    def space(self) -> Space:
        """What is searched: the parameters of the programs that take most of the time.

        Those of programs that a point does not have are as in the default, so that no kernel is met twice.
        """
        whole = tuning_space(self.programs, self.machine, self.sizes)
        default, costs = self.default, self._costs(self.default)
        ranked = sorted(range(len(costs)), key=lambda k: -costs[k])
        chosen = {k for k in ranked[:TUNED] if costs[k] >= MATTERS * sum(costs)}
        fixed = {name for name in whole.names if _number(name) not in chosen}

        def values_of(name: str, values: tuple[int | str, ...]) -> tuple[int | str, ...]:
            if name in fixed:
                return (default[name],)
            one_thread = _bare(name) == "threads" and bool(self._loops_around(_number(name)))
            more = [default[name], *([""] if one_thread else [])]
            return tuple(dict.fromkeys((*values, *more)))

        tiled = (*_TILES, _OUTER)
        tiles = tuple((name, _near(name, int(n))) for name, n in default.items() if name.startswith(tiled))
        fuse = tuple((f"{_FUSE}{k}", (0, 1)) for k in range(len(self.fusions)))
        known = ((KNOWN, (0, 1)),) if self.stated and self.known else ()
        regions = tuple((name, (0, 1)) for name in default if name.startswith(_REGION))
        runs = enumerate(runs_of(self.lifted.program))
        again = {f"{_NEXT}{k}": any(read_again(r.programs, r.dims)) for k, r in runs}
        parts = tuple((name, (0, 1)[: 1 + again[name]]) for name in default if name.startswith(_NEXT))
        unused = [
            (name, f"{_FUSE}{k} == {has} or {name} == {default[name]!r}")
            for k in range(len(self.fusions))
            for has, numbers in ((0, self._parts(k)), (1, [len(self.lifted.programs) + k]))
            for name in whole.names if name not in fixed and _number(name) in numbers
        ]  # fmt: skip
        own = tuple((name, values_of(name, values)) for name, values in whole.parameters)
        return Space(
            (*fuse, *own, *tiles, *regions, *parts, *known),  # what a point does not have is settled at once
            tuple(r for r in whole.rules if not fixed & set(_IDENTIFIER.findall(r))),
            (*(x for x in whole.idle if not fixed & set(_IDENTIFIER.findall(x[1]))), *unused),
        )

    def estimate(self, point: Point) -> float:
        """Seconds, roughly."""
        plan, own = self.formed(point)
        cost = sum(plan._costs(own))
        for k, run in enumerate(runs_of(plan.lifted.program)):
            if own.get(f"{_OUTER}{k}"):
                joined = [facts(plan.programs[n], plan.sizes[n]) for n in plan._numbers_of(run)]
                cost -= min(cost / 2, bytes_saved(joined, plan.machine) / plan.machine.bandwidth)
        return cost + plan._crossing(own)

    def _crossing(self, point: Point) -> float:
        """Seconds for what goes from core to core between the programs of host loops."""
        runs, total = iterations.runs(self.lifted.program, self.params), 0.0
        for mine in iterations.together(self.lifted.program):
            own = [facts(self.programs[k], self.sizes[k]) for k in mine]
            total += runs[mine[0]] * crossing(own, [own_values(point, k) for k in mine], self.machine)
        return total

    def _costs(self, point: Point) -> list[float]:
        """Seconds of each program, roughly, those too that a point does not have."""
        runs = iterations.runs(self.lifted.program, self.params)
        times = [*runs, *(runs[self._parts(k)[0]] for k in range(len(self.fusions)))]
        found = []
        for k, (program, extents) in enumerate(zip(self.programs, self.sizes, strict=True)):
            own = {_bare(name): value for name, value in point.items() if _number(name) == k}
            found.append(times[k] * estimate((program,), self.machine, (extents,), own))
        return found

    def configurations(self, point: Point) -> tuple[Configuration, ...]:
        """Of the programs that a point has, in the order of the text."""
        plan, own = self.formed(point)
        return configuration_at(plan.programs, plan.machine, plan.sizes, own)

    def candidate(self, point: Point, described: bool = False) -> Candidate:
        """What a point would put into the source."""
        kernel = self.kernel(point, described)
        configurations = [to_json(c) for c in self.configurations(point)]
        return Candidate(
            kernel.text, kernel.call, after_text(self.lifted), json.dumps(configurations, sort_keys=True)
        )

    def expression(self, point: Point) -> str:
        """The lines of the programs that a point has, for people."""
        return "\n".join(outline(self.formed(point)[0].lifted.program, expression))

    def kernel(self, point: Point, described: bool = True) -> Kernel:
        """The OpenMP kernel with a point of the search space.

        ``described``: the header names the configuration.  A search leaves that out, so that points that
        give the same code give the same text and are measured once.
        """
        if self.fusions:
            plan, point = self.formed(point)
            return plan.kernel(point, described)
        nest = self.lifted.nest
        steps, tiles, regions = self._with_outer_loops(point)
        configuration = "configuration: " + ", ".join(f"{k}={v}" for k, v in sorted(point.items()))
        return emit_openmp(
            KernelRequest(
                self.name,
                f"{nest.function}::{nest.label}",
                steps,
                self.configurations(point),
                self.machine,
                self.lines,
                nest.directive.noalias,
                nest.directive.assume,
                (
                    *outline(self.lifted.program, lambda p: expression(p, "->", "o")),
                    *self.variant.notes,
                    *(textwrap.wrap(configuration, 100) if described else ()),
                ),
                self.lifted.temporaries,
                nest.params,
                self.macros,
                tiles,
                regions,
                self.known if point.get(KNOWN) else (),
                self.apart,
            )
        )

    def _with_outer_loops(
        self, point: Point
    ) -> tuple[tuple[Step, ...], tuple[HostTiles | None, ...], tuple[bool, ...]]:
        """The steps with neighbours in one loop where a point has that; tiles and regions of host loops."""
        own = zip(
            (loop for loop, _ in iterations.host_loops(self.lifted.program, self.params)),
            self.host_tiles(point),
            self.regions(point),
            strict=True,
        )
        chosen = {id(loop): (tiles, region) for loop, tiles, region in own}
        widths = [int(point.get(f"{_OUTER}{k}", 0)) for k, _ in enumerate(runs_of(self.lifted.program))]
        ahead = [bool(point.get(f"{_NEXT}{k}", 0)) for k, _ in enumerate(widths)]
        steps, outer = in_one_loop(self.lifted.program, widths, ahead)
        loops = [loop for loop, _ in iterations.host_loops(steps, self.params)]
        found = [chosen.get(id(loop)) or (outer[loop], False) for loop in loops]
        return steps, tuple(t for t, _ in found), tuple(r for _, r in found)


def _near(name: str, usual: int) -> tuple[int, ...]:
    """Values to try for the width of a host loop's parts (0: no parts) and for the iterations of a block."""
    some = {usual, usual // 2, 2 * usual} - {0} if usual else set()
    if not usual and name.startswith(_OUTER):
        some = {_SOME}
    if not usual and name.startswith("strip_"):
        some = {STRIP}
    return tuple(sorted(some | (set() if name.startswith("steps_") and usual else {0})))


def _number(name: str) -> int:
    head, _, tail = name.rpartition("_at")
    return int(tail) if head and tail.isdigit() else 0


def _bare(name: str) -> str:
    return name.removesuffix(suffix_of(_number(name)))


def expression(program: MdhProgram, arrow: str = "\u21a6", after: str = "\u2218") -> str:
    """The MDH expression; with other signs for the arrow of an index function and for composition."""
    return show(program).replace("\u21a6", arrow).replace("\u2218", after).replace("\u2264", "<=")


def outline(
    steps: Sequence[Step], of: Callable[[MdhProgram], str], indent: str = ""
) -> Iterator[str]:
    """The lines of all programs, indented below their host loops, with sequential statements between."""
    for s in steps:
        match s:
            case MdhProgram():
                yield from (indent + line for line in of(s).splitlines())
            case HostLoop(iterator=t, size=size, body=body):
                yield f"{indent}for {t} in [0, {size}):"
                yield from outline(body, of, indent + "  ")
            case _:
                style = c_style("x{}".format, "r{}".format)
                yield from (f"{indent}{line}" for line in ["sequential", *_deeper(statements(s.body, style))])


def _deeper(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]


def not_known(lifted: LiftedNest, error: Exception) -> Refusal:
    """MDH804: the value of a size, which ``error`` names, cannot be told from the source."""
    what = f"`{lifted.nest.name}` cannot be run by itself: the value of {error} is not known"
    return refuse("MDH804", what, lifted.nest.span)


def plan(lifted: LiftedNest, lines: str = "", macros: frozenset[str] = frozenset()) -> Plan:
    """A plan for the directive's first ``sizes`` clause, or for usual sizes."""
    try:
        params = parameter_values(lifted, sizes_of(lifted))
    except (NotAnInteger, KeyError) as error:
        raise not_known(lifted, error) from None
    return planned(lifted, params, lines, macros, all_stated(lifted))


def planned(
    lifted: LiftedNest,
    params: Mapping[str, int],
    lines: str = "",
    macros: frozenset[str] = frozenset(),
    stated: bool = False,
) -> Plan:
    """A plan for values of the integer parameters: host loops in blocks where that pays at these."""
    machine = known_machine()
    lifted, fusions = formed_for(lifted, params, machine)
    steps = lifted.program
    sizes = iterations.sizes_at(steps, params)
    for f in fusions:
        first = tuple(programs_of(steps)).index(neighbours(steps, f)[0])
        sizes += iterations.sizes_at(fused(steps, f), params)[first : first + 1]
    return Plan(lifted, machine, params, sizes, lines, macros, fusions, stated=stated)


def kernel_name(function: str, label: str) -> str:
    """A C identifier: ``gemm_0_mdh``."""
    return re.sub(r"\W", "_", f"{function}_{label}_mdh", flags=re.ASCII)


# --------------------------------------------------------------------------- final values of iterators


def after_text(lifted: LiftedNest) -> str:
    """C statements that give iterators declared before the nest the values that the loops leave in them."""
    params = {p.name: p for q in lifted.programs for p in q.params}
    params |= {p.name: p for p in lifted.nest.params}
    return " ".join(_final(f, params) for f in lifted.iterators_final)


def _final(f: FinalIterator, params: Mapping[str, Param]) -> str:
    lower = _value(f.lower, params, atom=True)
    size = _size(f.size, params)
    step = size if f.step == 1 else f"{f.step} * ({size})"
    value = step if lower == "0" else f"{lower} + {step}"
    conditions = [f"({_value(s.span, params)}) > 0" for s in f.outer if (s.constant or 0) <= 0]
    statement = f"{f.name} = {value};"
    return f"if ({' && '.join(conditions)}) {statement}" if conditions else statement


def _size(size: Size, params: Mapping[str, Param]) -> str:
    if size.constant is not None:
        return str(size.constant)
    span = _value(size.span, params, alone=size.step == 1)
    rounded = span if size.step == 1 else f"(({span}) + {size.step - 1}) / {size.step}"
    return f"(({span}) > 0 ? {rounded} : 0)"


def _value(a: Affine, params: Mapping[str, Param], atom: bool = False, alone: bool = True) -> str:
    """An affine value over parameters where these have their C texts; ``n - 3`` must not wrap as an ``int``.

    ``alone``: nothing is added to it.
    """
    alone = alone and len(a.terms) == 1 and a.terms[0][1] == 1 and not a.const
    names = {}
    for name in a.names & params.keys():
        p = params[name]
        text = p.value or p.name
        narrow = isinstance(p.type, ScalarType) and p.type.is_integer and p.type.bits < 64
        whole = text if _IDENTIFIER.fullmatch(text) else f"({text})"
        names[name] = text if alone or not narrow else f"(long long){whole}"
    return affine_text(a, names, atom=atom)
