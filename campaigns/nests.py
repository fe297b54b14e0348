"""Random affine nests against the lifter.

    python -m campaigns.nests --seed 1 --count 100000 [--jobs 2] [--emit] [--python] [--keep DIR]

Each nest is read and lifted; what was lifted runs on small random data, as loops (``run_nest``) and as steps
(the interpreter, the index sets divided at random), and both must leave the same in every cell and every
scalar.  With ``--emit`` the kernels are compiled and compared with the compiled original, too; with
``--python`` each nest is also printed as Python and compared with what Python makes of it.  A failure is
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from campaigns.nest_data import (
    Grown,
    Index,
    Sizes,
    chosen_sizes,
    extents_of,
    is_undefined,
    random_data,
    random_number,
    run_loops,
    watched_run,
    with_derived,
)
from campaigns.nest_emit import Results, job, run_jobs
from campaigns.nest_maker import finished, random_nest
from campaigns.nest_shrink import shrunk
from campaigns.nest_tree import NUMPY_TYPES, PRELUDE, For, Nest, c_text, has_unsigned_iterator, py_text
from frontend_c.read import CompileCommand, read
from frontend_py.read import read as read_python
from lifter.lift import LiftedNest, lift
from lifter.loop_nest import LoopNest
from lifter.run_nest import run_nest
from mdh_core.evaluate import Env, EvaluationError, Value
from mdh_core.expr import Affine, ScalarType
from mdh_core.interpreter import BufferValue, integers, row_major, run_steps, same
from mdh_core.ir import HostLoop, MdhProgram, Step
from mdh_core.rules import verify
from mdh_core.source import SourceFile

SIZES = (0, 1, 2, 3, 5, 7)
MOST_POINTS = 400
MOST_VALUES = 8  # of the iterator of a host loop for which the rules are tried one by one
TIME_LIMIT = 20.0  # seconds of processor time to read and lift a nest
GARBAGE = 12345  # in temporaries of the lifted nest before anything is written there

Buffers = Mapping[str, BufferValue]


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
    python: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    dropped: int = 0
    uncompared: int = 0
    kernels: int = 0
    declined: int = 0

    def add(self, o: Outcome) -> None:
        self.nests += 1
        self.statuses["failed" if o.failure else o.status] += 1
        self.codes.update(o.codes)
        self.kinds.update(o.kinds)
        self.runs += o.runs
        self.dropped += o.dropped
        self.uncompared += o.status != "refused" and not o.failure and not o.runs

    def update(self, other: Tally) -> None:
        for name in ("nests", "runs", "dropped", "uncompared", "kernels", "declined"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.statuses.update(other.statuses)
        self.codes.update(other.codes)
        self.kinds.update(other.kinds)
        self.python.update(other.python)

    def text(self) -> str:
        def row(title: str, counts: Counter[str]) -> str:
            return f"{title}: " + (", ".join(f"{k} {n}" for k, n in counts.most_common()) or "none")

        return "\n".join(
            [
                f"{self.nests} nests, {self.runs} comparisons, {self.uncompared} lifted without any,"
                f" {self.dropped} runs dropped for large values",
                f"{self.kernels} calls of kernels, {self.declined} declined",
                row("status", self.statuses),
                row("steps", self.kinds),
                row("codes of refusals", self.codes),
                row("as Python", self.python),
            ]
        )


class TooSlow(Exception):  # noqa: N818 - an answer
    pass


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises ``TooSlow`` after so much processor time; only in a process's main thread."""

    def expired(_: int, frame: FrameType | None) -> None:
        raise TooSlow

    try:
        old = signal.signal(signal.SIGPROF, expired)
    except ValueError:
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


# --------------------------------------------------------------------------- running


class View(BufferValue):
    """A flat array as one step sees it: in rows; a last row need not be whole."""

    __slots__ = ()

    def __post_init__(self) -> None:
        self.strides = self.strides or row_major(self.extents)

    def position(self, index: Index) -> int:
        at = sum(i * s for i, s in zip(index, self.strides, strict=True))
        inside = all(0 <= i < n for i, n in zip(index[1:], self.extents[1:], strict=True))
        if not inside or not 0 <= at < len(self.data):
            raise EvaluationError(f"index {index} is outside of {len(self.data)} elements in {self.extents}")
        return at

    def copy(self) -> View:
        return View(list(self.data), self.extents, self.strides)


def seen_as(program: MdhProgram, params: Mapping[str, Value], buffers: Mapping[str, BufferValue]) -> Buffers:
    """The buffers in the program's shapes, with the same elements."""
    ints, out = integers(params), {}
    for b in program.buffers:
        value = buffers[b.name]
        if b.rank != len(value.extents) or b.strides is not None:
            inner = tuple(0 if e is None else max(0, e.evaluate(ints)) for e in b.extents[1:])
            strides = () if b.strides is None else tuple(x.evaluate(ints) for x in b.strides)
            value = View(value.data, (0, *inner) if b.rank else (), strides)
        out[b.name] = value
    return out


def run_shaped(
    steps: Sequence[Step], params: Mapping[str, Value], buffers: Buffers, split: random.Random | None
) -> None:
    """``run_steps`` for steps that may see one flat array in different shapes."""
    for s in steps:
        if isinstance(s, HostLoop):
            for i in range(s.size.evaluate(integers(params))):
                run_shaped(s.body, {**params, s.iterator: i}, buffers, split)
        elif isinstance(s, MdhProgram):
            run_steps((s,), params, seen_as(s, params, buffers), split=split)
        else:
            run_steps((s,), params, buffers)


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
    other: Callable[[], tuple[Mapping[str, list[Value]], Mapping[str, Value]]] | None = None,
) -> str:
    """``extents``: of the arrays that have several in the source; ``other``: a third way to run it."""
    source = lifted.nest
    params = with_derived(source, params)
    if not assumptions_hold(lifted.program, params):
        return ""
    start = {name: BufferValue(data, extents.get(name, (len(data),))) for name, data in arrays.items()}
    watched_run(source, params, {n: b.copy() for n, b in start.items()}, scalars)
    expected = {n: b.copy() for n, b in start.items()}
    after = {s.name: scalars[s.name] for s in source.scalars if s.name in scalars}
    run_nest(source, params, expected, after)
    if other:
        wanted, values = other()
        for name, data in wanted.items():
            if not all(map(same, expected[name].data, data)):
                return f"the loops leave `{name}` as {expected[name].data}, the source as {data}"
        for name, value in values.items():
            if name in after and not same(after[name], value):
                return f"the loops leave `{name}` as {after[name]}, the source as {value}"
    got = {n: b.copy() for n, b in start.items()}
    for s in source.scalars:
        got[s.name] = BufferValue([scalars.get(s.name, GARBAGE)], ())
    ints = integers(params)
    for b in lifted.temporaries:
        sides = tuple(0 if e is None else max(0, e.evaluate(ints)) for e in b.extents)
        got[b.name] = BufferValue([GARBAGE] * math.prod(sides), sides)
    run_shaped(lifted.program, params, got, rng if rng.random() < 0.5 else None)
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
        broken = broken_rules(lifted.program)
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


# --------------------------------------------------------------------------- Python


def check_python(nest: Nest, seed: int = 0, trials: int = 3) -> Outcome:
    """The nest printed as Python: read, lifted, and compared with what Python and NumPy make of it."""
    if not isinstance(nest.body[0], For):
        return Outcome("refused", ("MDH004",))  # what stands before the first loop is no part of the nest
    last = max(k for k, s in enumerate(nest.body) if isinstance(s, For))
    nest = finished(replace(nest, body=nest.body[: last + 1]))
    text, rng, runs, dropped = py_text(nest), random.Random(seed), 0, 0
    try:
        with time_limit(TIME_LIMIT):
            result = read_python(SourceFile("t.py", text.encode()))
            problems = [d for r in result.refused for d in r.diagnostics]
            if problems:
                return Outcome("refused", tuple(d.code for d in problems))
            (source,) = result.nests
            lifted = lift(source)
    except TooSlow:
        return Outcome(failure="python: too slow")
    except Exception as error:
        return raised("python", error)
    if lifted.status == "refused":
        return Outcome("refused", tuple(d.code for d in lifted.diagnostics if d.severity == "error"))
    for trial in range(trials):
        sizes = chosen_sizes(nest, rng, (3, 4, 5, 5, 7) if trial == 0 else SIZES, MOST_POINTS)
        try:
            with time_limit(TIME_LIMIT):
                differs = compared_python(nest, text, lifted, sizes, rng)
        except (Grown, OverflowError):
            dropped += 1
            continue
        except TooSlow:
            return Outcome(lifted.status, failure="python: run is too slow")
        except Exception as error:
            if is_undefined(error):
                dropped += 1
                continue
            return raised("python", error)
        runs += 1
        if differs:
            shown = ", ".join(f"{n}={v}" for n, v in sizes.items())
            return Outcome(lifted.status, failure="python: wrong result", detail=f"{shown}: {differs}")
    return Outcome(lifted.status, runs=runs, dropped=dropped, kinds=step_kinds(lifted))


def compared_python(nest: Nest, text: str, lifted: LiftedNest, sizes: Sizes, rng: random.Random) -> str:
    import numpy as np

    def number(t: str, value: object) -> object:
        return getattr(np, NUMPY_TYPES.get(t, t))(value)

    arrays, scalars = random_data(nest, sizes, rng)
    outer = {s.name for s in lifted.nest.scalars}
    params: dict[str, Value] = {n: v for n, v in {**sizes, **scalars}.items() if n not in outer}
    extents = {a.name: extents_of(a, sizes) for a in nest.arrays if a.rank > 1 and a.layout == "rows"}

    def run() -> tuple[dict[str, list[Value]], dict[str, Value]]:
        space: dict[str, object] = {"np": np}
        plain = [line for line in text.splitlines() if "mdh" not in line]
        exec("\n".join(plain), space)
        function = space["f"]
        assert callable(function)
        values: list[object] = [np.int64(sizes[n]) for n in nest.sizes]
        held = {}
        for a in nest.arrays:
            data = np.array(arrays[a.name], dtype=NUMPY_TYPES.get(a.type, a.type))
            if a.name in extents:
                data = data[: math.prod(extents[a.name])].reshape(extents[a.name])
            held[a.name] = data
            values.append(data)
        values += [number(s.type, scalars[s.name]) for s in nest.scalars if s.start is None]
        with np.errstate(all="ignore"):
            found = function(*values)
        live = [s.name for s in nest.scalars if s.live]
        found = (found,) if len(live) == 1 else found or ()
        lists = {n: a.reshape(-1).tolist() for n, a in held.items()}
        return lists, {n: v.item() for n, v in zip(live, found, strict=True)}

    return difference(lifted, params, scalars, arrays, extents, rng, run)


def broken_rules(steps: Sequence[Step]) -> list[str]:
    """The rules of the representation that a program breaks.

    In a host loop with a constant number of iterations a program has to break them for one of the iterator's
    values, not for an arbitrary one.
    """
    out: list[str] = []
    for s in steps:
        if isinstance(s, MdhProgram):
            out += verify(s)
        elif isinstance(s, HostLoop):
            broken = broken_rules(s.body)
            times = s.size.constant
            if broken and times is not None and times <= MOST_VALUES:
                values = (Affine.number(i) for i in range(times))
                broken = [b for i in values for b in broken_rules(with_value(s.body, s.iterator, i))]
            out += broken
    return out


def with_value(x: Any, name: str, value: Affine) -> Any:
    """Steps, or a part of them, with a value for a name in all affine expressions."""
    match x:
        case Affine():
            return x.substitute({name: value})
        case tuple():
            return tuple(with_value(y, name, value) for y in x)
        case _ if is_dataclass(x) and not isinstance(x, type):
            parts = {f.name: with_value(getattr(x, f.name), name, value) for f in fields(x) if f.init}
            return replace(x, **parts)
        case _:
            return x


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
        with time_limit(TIME_LIMIT):
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
    return lifted if isinstance(lifted, Outcome) else check_lifted(nest, lifted, seed, trials)


def check_lifted(nest: Nest, lifted: LiftedNest, seed: int, trials: int) -> Outcome:
    rng = random.Random(seed)
    runs = dropped = 0
    broken = broken_rules(lifted.program)
    if broken:
        return Outcome(lifted.status, failure="a rule of the representation is broken", detail=broken[0])
    for trial in range(trials):
        sizes = chosen_sizes(nest, rng, (3, 4, 5, 5, 7) if trial == 0 else SIZES, MOST_POINTS)
        try:
            with time_limit(TIME_LIMIT):
                differs = compared(nest, lifted, sizes, rng)
        except Grown:
            dropped += 1
            continue
        except TooSlow:
            return Outcome(lifted.status, failure="run: too slow")
        except EvaluationError as error:
            if any(f.name == "run_loops" for f in traceback.extract_tb(error.__traceback__)):
                # `i < n - 2` with an unsigned `i` holds where n is 1: the source itself leaves its arrays
                if is_undefined(error) or (has_unsigned_iterator(nest) and "outside" in str(error)):
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
        if self.failure.startswith("python"):
            return f"# seed {self.seed}: {self.failure}: {self.detail[:300]}\n{py_text(self.nest)}"
        return found_text(self.nest, f"seed {self.seed}: {self.failure}", self.detail)


def found_text(nest: Nest, title: str, detail: str = "") -> str:
    detail = detail[:300].replace("/*", "").replace("*/", "")
    comment = f"/* {title}" + (f"\n   {detail}" if detail else "") + " */\n"
    prelude = PRELUDE if "larger_" in c_text(nest) else ""
    return comment.replace("\n   */", " */") + prelude + c_text(nest)


def check_emitted(nests: Mapping[int, tuple[Nest, LiftedNest]]) -> Results:
    """Kernels of lifted nests by seed, in one program."""
    jobs, failed = [], {}
    for seed, (nest, lifted) in nests.items():
        try:
            with time_limit(TIME_LIMIT):
                jobs.append(job(seed, nest, lifted))
        except TooSlow:
            failed[seed] = ("emit: too slow", "")
        except Exception as error:
            found = raised("emit", error)
            failed[seed] = (found.failure, found.detail)
    results = run_jobs(jobs)
    results.failures |= failed
    return results


def check_all(nest: Nest, seed: int, trials: int, emitted: bool) -> Outcome:
    """``check``, and the kernel of this nest alone."""
    lifted = check_text(c_text(nest))
    if isinstance(lifted, Outcome):
        return lifted
    outcome = check_lifted(nest, lifted, seed, trials)
    if emitted and not outcome.failure:
        failures = check_emitted({seed: (nest, lifted)}).failures
        if seed in failures:
            return Outcome(lifted.status, failure=failures[seed][0], detail=failures[seed][1])
    return outcome


def failure_of(seed: int, nest: Nest, outcome: Outcome, small: bool = True) -> Failure:
    """The failure with a minimal nest."""
    if not small:
        return Failure(seed, outcome.failure, outcome.detail, nest)
    if "slow" in outcome.failure:  # each attempt would take as long
        return Failure(seed, outcome.failure, outcome.detail, nest)
    whole = outcome.failure.startswith(("emit", "python"))
    kind = outcome.failure if whole else outcome.failure.split(":")[0]
    emitted = kind.startswith("emit")

    def found(candidate: Nest) -> Outcome:
        if kind.startswith("python"):
            return check_python(candidate, seed, 6)
        return check_all(candidate, seed, 1 if emitted else 6, emitted)

    def fails(candidate: Nest) -> bool:
        failure = found(candidate).failure
        return failure.startswith(kind) and "slow" not in failure

    smallest = shrunk(nest, fails, 120.0 if emitted else 60.0)
    again = found(smallest)
    return Failure(seed, again.failure or outcome.failure, again.detail or outcome.detail, smallest)


@dataclass(frozen=True)
class Settings:
    small: bool = True  # shrink failures
    trials: int = 3
    emit: bool = False
    python: bool = False


def part_of_campaign(seeds: range, settings: Settings) -> tuple[Tally, list[Failure]]:
    tally, failures = Tally(), []
    lifted_nests: dict[int, tuple[Nest, LiftedNest]] = {}
    failed: dict[int, tuple[Nest, Outcome]] = {}
    for seed in seeds:
        nest = random_nest(seed)
        lifted = check_text(c_text(nest))
        if isinstance(lifted, Outcome):
            outcome = lifted
        else:
            outcome = check_lifted(nest, lifted, seed, settings.trials)
            if not outcome.failure:
                lifted_nests[seed] = nest, lifted
        tally.add(outcome)
        if settings.python and not outcome.failure:
            second = check_python(nest, seed, settings.trials)
            tally.python[second.failure or second.status] += 1
            outcome = second if second.failure else outcome
        if outcome.failure:
            failed[seed] = nest, outcome
    if settings.emit:
        results = check_emitted(lifted_nests)
        tally.kernels += results.ran
        tally.declined += results.declined
        for seed, (failure, detail) in results.failures.items():
            nest, lifted = lifted_nests[seed]
            tally.statuses[lifted.status] -= 1
            tally.statuses["failed"] += 1
            failed[seed] = nest, Outcome(lifted.status, failure=failure, detail=detail)
    for seed, (nest, outcome) in failed.items():
        failures.append(failure_of(seed, nest, outcome, settings.small))
    return tally, failures


def campaign(
    seed: int, count: int, jobs: int, settings: Settings = Settings(), progress: bool = False
) -> tuple[Tally, list[Failure]]:
    """Nests of the seeds ``seed``, ``seed + 1``, …"""
    width = 25
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
            note(part_of_campaign(chunk, settings))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            for part in pool.map(part_of_campaign, chunks, [settings] * len(chunks)):
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
    parser.add_argument("--python", action="store_true", help="print the nests as Python, too")
    options = parser.parse_args(arguments)
    if options.show:
        nest = random_nest(options.seed)
        print(c_text(nest))
        print(check_all(nest, options.seed, options.trials, options.emit))
        return 0
    settings = Settings(not options.no_shrink, options.trials, options.emit, options.python)
    tally, failures = campaign(options.seed, options.count, options.jobs, settings, progress=True)
    print(tally.text())
    kinds = Counter(f.failure for f in failures)
    for f in {f.failure: f for f in reversed(failures)}.values():
        print(f"\n{kinds[f.failure]} x {f.text}")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for f in failures:
            suffix = "py" if f.failure.startswith("python") else "c"
            (options.keep / f"seed_{f.seed}.{suffix}").write_text(f.text, encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
