"""Random affine nests against the lifter.

    python -m campaigns.nests --seed 1 --count 100000 [--jobs 2] [--emit] [--keep DIR]

Each nest is read and lifted; what was lifted runs on small random data, as loops (``run_nest``) and as steps
(the interpreter, the index sets divided at random), and both must leave the same in every cell and every
scalar.  With ``--emit`` the kernels are compiled and compared with the compiled original, too.  A failure is
shrunk to a minimal nest; ``--keep`` writes these as C files.  Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from campaigns.nest_maker import random_nest
from campaigns.nest_shrink import shrunk
from campaigns.nest_tree import PRELUDE, Array, Nest, c_text, points
from frontend_c.read import CompileCommand, read
from lifter.lift import LiftedNest, lift
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.run_nest import place, run_nest
from mdh_core.evaluate import Env, EvaluationError, Value, convert, evaluate_scalar, execute
from mdh_core.expr import ScalarType
from mdh_core.interpreter import BufferValue, integers, run_steps, same
from mdh_core.ir import HostLoop, MdhProgram, Step
from mdh_core.rules import verify
from mdh_core.source import SourceFile

SIZES = (0, 1, 2, 3, 5, 7)
MOST_POINTS = 400
WALL_LIMIT = 20.0  # seconds to read and lift a nest
GARBAGE = 12345  # in temporaries of the lifted nest before anything is written there

Sizes = dict[str, int]
Index = tuple[int, ...]


# --------------------------------------------------------------------------- outcomes


@dataclass(frozen=True)
class Outcome:
    """``failure``: a class of failures ("" if none); ``detail`` says more and is not compared."""

    status: str = ""  # lifted | partial | refused
    codes: tuple[str, ...] = ()
    failure: str = ""
    detail: str = ""
    runs: int = 0  # comparisons made
    dropped: int = 0  # data for which values grew too large
    kinds: tuple[str, ...] = ()  # of steps


@dataclass
class Tally:
    nests: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    dropped: int = 0
    uncompared: int = 0

    def add(self, o: Outcome) -> None:
        self.nests += 1
        self.statuses["failed" if o.failure else o.status] += 1
        self.codes.update(o.codes)
        self.kinds.update(o.kinds)
        self.runs += o.runs
        self.dropped += o.dropped
        self.uncompared += o.status != "refused" and not o.failure and not o.runs

    def update(self, other: Tally) -> None:
        for name in ("nests", "runs", "dropped", "uncompared"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.statuses.update(other.statuses)
        self.codes.update(other.codes)
        self.kinds.update(other.kinds)

    def text(self) -> str:
        def row(title: str, counts: Counter[str]) -> str:
            return f"{title}: " + (", ".join(f"{k} {n}" for k, n in counts.most_common()) or "none")

        return "\n".join(
            [
                f"{self.nests} nests, {self.runs} comparisons, {self.uncompared} lifted without any,"
                f" {self.dropped} runs dropped for large values",
                row("status", self.statuses),
                row("steps", self.kinds),
                row("codes of refusals", self.codes),
            ]
        )


class TooSlow(Exception):  # noqa: N818 - an answer
    pass


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises ``TooSlow``; only in a process's main thread, elsewhere there is no limit."""

    def expired(_: int, frame: FrameType | None) -> None:
        raise TooSlow

    try:
        old = signal.signal(signal.SIGALRM, expired)
    except ValueError:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


# --------------------------------------------------------------------------- running


class Grown(Exception):  # noqa: N818 - an answer
    """A value became so large that another order of a sum could round or overflow."""


def limit_of(t: object) -> int:
    if not isinstance(t, ScalarType) or t.kind in ("uint", "bool") or t.bits < 32:
        return 1 << 70
    if t.is_float:
        return 1 << (16 if t.bits == 32 else 40)
    return 1 << (24 if t.bits == 32 else 52)


def watched_run(
    nest: LoopNest,
    params: Mapping[str, Value],
    buffers: Mapping[str, BufferValue],
    scalars: Mapping[str, Value],
) -> None:
    """The nest run as loops; raises ``Grown`` for large values, and where C leaves the meaning undefined."""
    limits = {b.name: limit_of(b.type) for b in nest.buffers}
    scalar_limits = {s.name: limit_of(s.type) for s in nest.scalars}

    def small(value: Value, limit: int) -> Value:
        assert not isinstance(value, tuple)
        if not math.isfinite(value) or abs(value) > limit:
            raise Grown
        return value

    class Watched(dict[str, Value | None]):
        def __setitem__(self, name: str, value: Value | None) -> None:
            if value is not None:
                small(value, scalar_limits.get(name, 1 << 70 if isinstance(value, int) else 1 << 16))
            super().__setitem__(name, value)

    def store(name: str, index: tuple[int, ...], value: Value) -> None:
        buffers[name].data[place(buffers[name], index)] = small(value, limits[name])

    env = Env(
        Watched({**params, **scalars}),
        {f.name: f for f in nest.functions},
        load=lambda name, index: buffers[name].data[place(buffers[name], index)],
        store=store,
        trap_overflow=True,
    )

    run_loops(nest.body, env)


def run_loops(body: tuple[NestStmt, ...], env: Env) -> None:
    for s in body:
        if not isinstance(s, Loop):
            execute((s,), env)
            continue
        low, high = int(evaluate_scalar(s.lower, env)), int(evaluate_scalar(s.upper, env))
        values = range(low, high, s.step)
        for i in values:
            env.variables[s.iterator] = i
            run_loops(s.body, env)
        env.variables[s.iterator] = convert(low + len(values) * s.step, s.type)


def random_number(kind: str, type_name: str, rng: random.Random, reach: int = 1) -> int | float:
    match kind:
        case "index":
            return rng.randrange(max(1, reach))
        case "unit":
            value = rng.choice([-1, 1])
        case "bit":
            value = rng.randint(0, 1)
        case _:
            value = rng.randint(-4, 7)
    if type_name.startswith("uint"):
        return abs(value)
    return float(value) if type_name in ("float", "double") else value


def chosen_sizes(nest: Nest, rng: random.Random, trial: int) -> Sizes:
    """Sizes with at most ``MOST_POINTS`` statements; the first ones leave few loops empty."""
    pool = (3, 4, 5, 5, 7) if trial == 0 else SIZES
    sizes = {n: rng.choice(pool) for n in nest.sizes}
    while sizes and points(nest, sizes, MOST_POINTS + 1) > MOST_POINTS:
        name = max(sizes, key=lambda n: sizes[n])
        if sizes[name] == 0:
            break
        sizes[name] -= 1
    return sizes


def extents_of(a: Array, sizes: Sizes) -> tuple[int, ...]:
    return tuple(max(0, e.at(sizes)) for e in a.extents)


def random_data(
    nest: Nest, sizes: Sizes, rng: random.Random
) -> tuple[dict[str, list[Value]], dict[str, Value]]:
    """Contents of the arrays (at least one element each) and the values of the scalars that have one."""
    arrays: dict[str, list[Value]] = {}
    for a in nest.arrays:
        count = max(1, math.prod(extents_of(a, sizes)))
        reach = a.reach.at(sizes)
        arrays[a.name] = [random_number(a.data, a.type, rng, reach) for _ in range(count)]
    scalars: dict[str, Value] = {}
    for s in nest.scalars:
        if s.start != "":
            number = random_number("small", s.type, rng) if s.start is None else int(s.start)
            scalars[s.name] = float(number) if s.type in ("float", "double") else number
    return arrays, scalars


def shapes(lifted: LiftedNest, params: Mapping[str, Value]) -> dict[str, tuple[Index, Index]]:
    """Inner extents and strides of the buffers as the steps see them."""
    ints = integers(params)
    out: dict[str, tuple[Index, Index]] = {}
    for p in lifted.programs:
        for b in p.buffers:
            inner = tuple(1 if e is None else max(0, e.evaluate(ints)) for e in b.extents[1:])
            strides = () if b.strides is None else tuple(s.evaluate(ints) for s in b.strides)
            out.setdefault(b.name, (inner, strides) if b.rank else ((), ()))
    return out


def compared(nest: Nest, lifted: LiftedNest, sizes: Sizes, rng: random.Random) -> str:
    """What differs between the loops and the steps ("" for nothing), on random data for these sizes."""
    arrays, scalars = random_data(nest, sizes, rng)
    outer = {s.name for s in lifted.nest.scalars}
    params: dict[str, Value] = {n: v for n, v in {**sizes, **scalars}.items() if n not in outer}
    extents = {a.name: extents_of(a, sizes) for a in nest.arrays if a.rank > 1 and a.layout == "rows"}
    return difference(lifted, params, scalars, arrays, extents, rng)


def difference(
    lifted: LiftedNest,
    params: dict[str, Value],
    scalars: dict[str, Value],
    arrays: Mapping[str, list[Value]],
    extents: Mapping[str, Index],
    rng: random.Random,
) -> str:
    """``extents``: of the arrays that have several in the source."""
    source = lifted.nest
    params = with_derived(source, params)
    if not assumptions_hold(lifted.program, params):
        return ""
    found = shapes(lifted, params)
    start: dict[str, BufferValue] = {}
    for name, data in arrays.items():
        inner, strides = found.get(name, ((), ()))
        if name in extents:
            data = data + data[-1:] * (math.prod(extents[name]) - len(data))
            start[name] = BufferValue(data, extents[name])
        elif inner:
            row = math.prod(inner)
            rows = -(-len(data) // row) if row else 0
            data = data + data[-1:] * (rows * row - len(data))
            start[name] = BufferValue(data, (rows, *inner), strides)
        else:
            start[name] = BufferValue(data, (len(data),))
    watched_run(source, params, {n: b.copy() for n, b in start.items()}, scalars)
    expected = {n: b.copy() for n, b in start.items()}
    after = {s.name: scalars[s.name] for s in source.scalars if s.name in scalars}
    run_nest(source, params, expected, after)
    got = {n: b.copy() for n, b in start.items()}
    for s in source.scalars:
        got[s.name] = BufferValue([scalars.get(s.name, GARBAGE)], ())
    ints = integers(params)
    for b in lifted.temporaries:
        sides = tuple(0 if e is None else max(0, e.evaluate(ints)) for e in b.extents)
        got[b.name] = BufferValue([GARBAGE] * math.prod(sides), sides)
    run_steps(lifted.program, params, got, split=rng if rng.random() < 0.5 else None)
    for name in arrays:
        if not all(map(same, got[name].data, expected[name].data)):
            return f"`{name}` is {got[name].data}, not {expected[name].data}"
    for x in source.scalars:
        if x.live_after and x.name in after and not same(got[x.name].data[0], after[x.name]):
            return f"`{x.name}` is {got[x.name].data[0]}, not {after[x.name]}"
    return ""


def assumptions_hold(steps: Sequence[Step], params: Mapping[str, Value]) -> bool:
    """Of all programs, in all iterations of host loops."""
    for s in steps:
        if isinstance(s, MdhProgram) and any(a.evaluate(integers(params)) < 0 for a in s.assumptions):
            return False
        if isinstance(s, HostLoop):
            values = range(s.size.evaluate(integers(params)))
            if not all(assumptions_hold(s.body, {**params, s.iterator: i}) for i in values):
                return False
    return True


def with_derived(source: LoopNest, params: dict[str, Value]) -> dict[str, Value]:
    """Hoisted invariants are values of their own only by name."""
    params = dict(params)
    for p in source.params:
        if p.value not in ("", p.name):
            params[p.name] = eval(p.value.replace("/", "//"), {}, dict(params))
    return params


class Reach(dict[tuple[str, Index], Value]):
    """Cells that come into being when they are touched."""

    def __init__(self, nest: LoopNest, rng: random.Random) -> None:
        super().__init__()
        self.types = {b.name: b.type for b in nest.buffers}
        self.rng = rng

    def __missing__(self, cell: tuple[str, Index]) -> Value:
        if min(cell[1], default=0) < 0:
            raise EvaluationError(f"negative index {cell}")
        t = self.types[cell[0]]
        assert isinstance(t, ScalarType)
        value = random_number("small", str(t), self.rng)
        self[cell] = abs(value) if t.kind in ("uint", "bool") else float(value) if t.is_float else value
        return self[cell]


def compared_source(lifted: LiftedNest, rng: random.Random) -> str:
    """The same for a nest of which only the source is known: arrays are as large as a first run needs."""
    source = lifted.nest
    params: dict[str, Value] = {}
    for p in source.params:
        assert isinstance(p.type, ScalarType)
        number = rng.choice(SIZES[:-1])
        params[p.name] = number if p.type.is_integer else float(number)
    scalars: dict[str, Value] = {}
    for x in source.scalars:
        assert isinstance(x.type, ScalarType)
        scalars[x.name] = rng.randint(0, 5) if x.type.is_integer else float(rng.randint(-3, 5))
    params = with_derived(source, params)
    before = Reach(source, rng)
    touched = Reach(source, rng)

    def load(name: str, index: Index) -> Value:
        if (name, index) not in touched:
            touched[name, index] = before[name, index]
        return touched[name, index]

    def store(name: str, index: Index, value: Value) -> None:
        _ = before[name, index]
        touched[name, index] = value

    run_loops(
        source.body,
        Env({**params, **scalars}, {f.name: f for f in source.functions}, load=load, store=store),
    )
    ints, extents, arrays = integers(params), {}, {}
    for b in source.buffers:
        cells = {index: v for (name, index), v in before.items() if name == b.name}
        sides = [1 + max((i[d] for i in cells), default=0) for d in range(b.rank)]
        declared = [None if e is None else e.evaluate(ints) for e in b.extents]
        sides = [n if d is None else max(0, d) for n, d in zip(sides, declared, strict=True)]
        if any(not 0 <= i < n for index in cells for i, n in zip(index, sides, strict=True)):
            raise EvaluationError("outside")
        value = BufferValue([before.rng.randint(0, 3)] * max(1, math.prod(sides)), tuple(sides))
        for index, v in cells.items():
            value[index] = v
        arrays[b.name] = value.data
        if b.rank != 1:
            extents[b.name] = tuple(sides)
    return difference(lifted, params, scalars, arrays, extents, rng)


def check_c(text: str, seed: int = 1, trials: int = 20) -> list[Outcome]:
    """Every nest of a C file on random sizes and data; data for which C has no meaning is left out."""
    out: list[Outcome] = []
    result = read(SourceFile("t.c", text.encode()), CompileCommand())
    for refused in result.refused:
        out.append(Outcome("refused", tuple(d.code for d in refused.diagnostics)))
    for nest in result.nests:
        lifted = lift(nest)
        rng, runs, failure, detail = random.Random(seed), 0, "", ""
        codes = tuple(d.code for d in lifted.diagnostics if d.severity == "error")
        broken = [str(v) for p in lifted.programs for v in verify(p)]
        if broken:
            failure, detail = "a rule of the representation is broken", broken[0]
        for _ in range(trials if lifted.status != "refused" and not broken else 0):
            try:
                detail = compared_source(lifted, rng)
            except Grown:
                continue
            except EvaluationError as error:
                if any(f.name == "run_loops" for f in traceback.extract_tb(error.__traceback__)):
                    continue
                failure, detail = raised("run", error).failure, str(error)
                break
            runs += 1
            if detail:
                failure = "wrong result"
                break
        out.append(Outcome(lifted.status, codes, failure, detail, runs, 0, step_kinds(lifted)))
    return out


def step_kinds(lifted: LiftedNest) -> tuple[str, ...]:
    def kinds(steps: Sequence[object]) -> Iterator[str]:
        for s in steps:
            yield type(s).__name__
            yield from kinds(getattr(s, "body", ()) if type(s).__name__ == "HostLoop" else ())

    return tuple(sorted(set(kinds(lifted.program))))


def raised(stage: str, error: BaseException) -> Outcome:
    """The class names the place, not the data."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "campaigns" not in f.filename] or list(frames)
    where = f"{Path(inside[-1].filename).name}:{inside[-1].name}"
    return Outcome(failure=f"{stage}: {type(error).__name__} in {where}", detail=str(error)[:500])


def check_text(text: str) -> LiftedNest | Outcome:
    """Read and lift; a refusal or a failure as an outcome."""
    stage = "read"
    try:
        with time_limit(WALL_LIMIT):
            result = read(SourceFile("t.c", (PRELUDE + text).encode()), CompileCommand())
            problems = [d for r in result.refused for d in r.diagnostics] + list(result.diagnostics)
            codes = tuple(sorted({d.code for d in problems if d.severity == "error"}))
            if codes:
                return Outcome("refused", codes)
            (nest,) = result.nests
            stage = "lift"
            lifted = lift(nest)
    except TooSlow:
        return Outcome(failure=f"{stage}: too slow")
    except Exception as error:
        return raised(stage, error)
    if lifted.status == "refused":
        codes = tuple(d.code for d in lifted.diagnostics if d.severity == "error")
        return Outcome("refused", codes) if codes else Outcome(failure="refused without an error")
    return lifted


def check(nest: Nest, seed: int = 0, trials: int = 3) -> Outcome:
    """The nest through the frontend and the lifter, and its steps against its loops."""
    lifted = check_text(c_text(nest))
    if isinstance(lifted, Outcome):
        return lifted
    rng = random.Random(seed)
    runs = dropped = 0
    broken = [str(v) for p in lifted.programs for v in verify(p)]
    if broken:
        return Outcome(lifted.status, failure="a rule of the representation is broken", detail=broken[0])
    for trial in range(trials):
        sizes = chosen_sizes(nest, rng, trial)
        try:
            with time_limit(WALL_LIMIT):
                differs = compared(nest, lifted, sizes, rng)
        except Grown:
            dropped += 1
            continue
        except TooSlow:
            return Outcome(lifted.status, failure="run: too slow")
        except EvaluationError as error:
            if any(f.name == "run_loops" for f in traceback.extract_tb(error.__traceback__)):
                if "overflow" in str(error):
                    dropped += 1
                    continue
                return raised("the generator", error)
            return raised("run", error)
        except Exception as error:
            return raised("run", error)
        runs += 1
        if differs:
            shown = ", ".join(f"{n}={v}" for n, v in sizes.items())
            return Outcome(lifted.status, failure="wrong result", detail=f"{shown}: {differs}")
    return Outcome(lifted.status, runs=runs, dropped=dropped, kinds=step_kinds(lifted))


# --------------------------------------------------------------------------- campaigns


@dataclass(frozen=True)
class Failure:
    seed: int
    failure: str
    detail: str
    nest: Nest

    @property
    def text(self) -> str:
        return found_text(self.nest, f"seed {self.seed}: {self.failure}", self.detail)


def found_text(nest: Nest, title: str, detail: str = "") -> str:
    comment = f"/* {title}" + (f"\n   {detail[:300]}" if detail else "") + " */\n"
    prelude = PRELUDE if "larger_" in c_text(nest) else ""
    return comment.replace("\n   */", " */") + prelude + c_text(nest)


def failure_of(seed: int, nest: Nest, outcome: Outcome, small: bool = True) -> Failure:
    """The failure with a minimal nest."""
    if not small:
        return Failure(seed, outcome.failure, outcome.detail, nest)
    kind = outcome.failure.split(":")[0] if "slow" not in outcome.failure else outcome.failure

    def fails(candidate: Nest) -> bool:
        found = check(candidate, seed, 6)
        return found.failure.startswith(kind) and ("slow" in found.failure) == ("slow" in kind)

    smallest = shrunk(nest, fails)
    again = check(smallest, seed, 6)
    return Failure(seed, again.failure or outcome.failure, again.detail or outcome.detail, smallest)


def part_of_campaign(seeds: range, small: bool, trials: int) -> tuple[Tally, list[Failure]]:
    tally, failures = Tally(), []
    for seed in seeds:
        nest = random_nest(seed)
        outcome = check(nest, seed, trials)
        tally.add(outcome)
        if outcome.failure:
            failures.append(failure_of(seed, nest, outcome, small))
    return tally, failures


def campaign(
    seed: int, count: int, jobs: int, small: bool = True, trials: int = 3, progress: bool = False
) -> tuple[Tally, list[Failure]]:
    """Nests of the seeds ``seed``, ``seed + 1``, …"""
    width = 50
    chunks = [range(s, min(s + width, seed + count)) for s in range(seed, seed + count, width)]
    tally, failures = Tally(), []
    start = time.monotonic()

    def note(part: tuple[Tally, list[Failure]]) -> None:
        tally.update(part[0])
        failures.extend(part[1])
        if progress:
            for f in part[1]:
                print(f"\n{f.text}", file=sys.stderr, flush=True)
            done, spent = tally.nests, time.monotonic() - start
            line = f"\r{done}/{count} nests, {len(failures)} failures, {spent:.0f} s"
            print(line, end="", file=sys.stderr, flush=True)

    if jobs == 1:
        for chunk in chunks:
            note(part_of_campaign(chunk, small, trials))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            for part in pool.map(part_of_campaign, chunks, [small] * len(chunks), [trials] * len(chunks)):
                note(part)
    if progress:
        print(file=sys.stderr)
    return tally, failures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.nests", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trials", type=int, default=3, help="data sets per nest")
    parser.add_argument("--emit", action="store_true", help="compile the kernels, too")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write minimal failing nests there")
    parser.add_argument("--show", action="store_true", help="print the nest of the seed and its fate")
    options = parser.parse_args(arguments)
    if options.show:
        nest = random_nest(options.seed)
        print(c_text(nest))
        print(check(nest, options.seed, options.trials))
        return 0
    tally, failures = campaign(
        options.seed, options.count, options.jobs, not options.no_shrink, options.trials, progress=True
    )
    print(tally.text())
    kinds = Counter(f.failure for f in failures)
    for f in {f.failure: f for f in reversed(failures)}.values():
        print(f"\n{kinds[f.failure]} x {f.text}")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for f in failures:
            (options.keep / f"seed_{f.seed}.c").write_text(f.text, encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
