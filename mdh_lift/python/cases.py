"""Small inputs for a nest, and what its loops make of them in Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from frontend_py.nest import Shape
from frontend_py.read import FunctionRead
from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.run_nest import run_nest
from mdh_core.evaluate import Env, EvaluationError, evaluate_scalar
from mdh_core.expr import Expr, If, RecordType, ScalarType
from mdh_core.interpreter import BufferValue, run_steps
from mdh_lift.entry import Slot
from mdh_lift.python.bounds import Walker, leaves_arrays, reach
from mdh_lift.python.build import Case
from mdh_lift.python.call import agree, cell, dtype_of

MOST_POINTS = 1_000_000  # iterations that Python may run for all cases together
_MOST_CELLS = 1 << 24
_MOST_INTERPRETED = 20_000
_SIZES = (
    (3, 5, 4, 7, 2, 6, 3), (1,), (17, 9, 21, 13, 5, 11, 8), (0,), (67, 35, 53, 41, 29, 19, 23), (2, 3),
    (2, 3, 2, 4, 3, 2, 3, 13, 17, 19), (5, 4, 9, 11, 13, 15, 17, 19, 23), (6,), (33,), (12, 11, 10, 9, 8, 7),
)  # fmt: skip


def derived_values(
    derived: Mapping[str, Expr | Shape], params: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Values of parameters that are computed before the nest."""
    out: dict[str, int] = {}
    for name, source in derived.items():
        if isinstance(source, Shape):
            out[name] = shapes[source.array][source.dimension]
        else:
            out[name] = int(evaluate_scalar(source, Env({**params, **out}, {})))
    return out


def cases(
    read: FunctionRead, slots: tuple[Slot, ...], run: Callable[..., Any] | None, weak: Mapping[str, object],
    exact: bool = True,
) -> list[Case]:  # fmt: skip
    """Inputs of several sizes with Python's results; those that Python cannot compute are left out.

    ``run`` takes the variables by their names in the source; ``weak``: a Python type for plain numbers.
    """
    out: list[Case] = []
    spent = 0
    for number, sizes in enumerate(_SIZES):
        made = _inputs(read, sizes, number)
        if made is None:
            continue
        params, shapes = made
        points = _points(read.nest, params)
        if points is None or spent + points > MOST_POINTS:
            continue
        spent += points
        case = _case(read, slots, run, weak, params, shapes, np.random.default_rng(number + 1), number)
        if case is None or (not exact and _ill_conditioned(read, slots, run, weak, case)):
            continue
        out.append(case)
    return out


def _ill_conditioned(
    read: FunctionRead, slots: tuple[Slot, ...], run: Callable[..., Any] | None, weak: Mapping[str, object],
    case: Case,
) -> bool:  # fmt: skip
    """Do results change by more than rounding where inputs change in the last digit?

    Then another order of summation changes them, too, and they say nothing about the kernel.
    """
    if run is None:
        return False
    near: _Arrays = {}
    for s, x in zip(slots, case.inputs, strict=True):
        near[s.name] = np.nextafter(x, np.inf * np.ones_like(x)) if x.dtype.kind == "f" else x
    results = _by_python(read, slots, run, weak, near)
    if results is None:
        return True
    return not all(
        wanted is None or agree(results[s.name], np.asarray(wanted), False)
        for s, wanted in zip(slots, case.expected, strict=True)
    )


def _inputs(
    read: FunctionRead, sizes: tuple[int, ...], number: int
) -> tuple[dict[str, int], dict[str, tuple[int, ...]]] | None:
    """Values of integer parameters and shapes of arrays that hold all the nest touches."""
    nest = read.nest
    values = itertools.cycle(sizes)
    params = {
        p.name: next(values)
        for p in nest.params
        if isinstance(p.type, ScalarType) and p.type.is_integer and p.name not in read.derived
    }
    for name, source in read.derived.items():
        if isinstance(source, Shape):
            params[name] = next(values)
        else:
            try:
                params[name] = int(evaluate_scalar(source, Env(dict(params), {})))
            except (EvaluationError, ZeroDivisionError):
                return None
    touched = reach(nest, params, lambda buffer: (0, 3)).indices
    given = {(s.array, s.dimension): params[n] for n, s in read.derived.items() if isinstance(s, Shape)}
    shapes: dict[str, tuple[int, ...]] = {}
    for b in nest.buffers:
        shape = []
        for k, extent in enumerate(b.extents):
            interval = touched.get((b.name, k), (0, 0))
            if extent is not None:
                n = extent.evaluate(params)
            elif (read.variables.get(b.name, b.name), k) in given:
                n = given[read.variables.get(b.name, b.name), k]
            elif interval is None:
                return None
            else:
                n = max(0, interval[1] + 1) + number % 2
            if n < 0:
                return None
            shape.append(n)
        if math.prod(shape) > _MOST_CELLS:
            return None
        shapes[b.name] = tuple(shape)
    return params, shapes


def _points(nest: LoopNest, params: Mapping[str, int]) -> int | None:
    """Iterations of the innermost statements, roughly."""
    walker = Walker(nest, params, None, lambda buffer: (0, 3))

    def count(body: tuple[NestStmt, ...]) -> int:
        total = 1
        for s in body:
            if isinstance(s, If):
                total += count(s.then) + count(s.other)  # type: ignore[arg-type] # loops in it
            if isinstance(s, Loop):
                lower, upper = walker.interval(walker.known(s.lower)), walker.interval(walker.known(s.upper))
                if lower is None or upper is None:
                    return MOST_POINTS + 1
                low, high = (lower[0], upper[1] - 1) if s.step > 0 else (upper[0] + 1, lower[1])
                walker.box[s.iterator] = (low, high)
                total += max(0, (high - low) // abs(s.step) + 1) * count(s.body)
        return total

    return count(nest.body)


def _case(
    read: FunctionRead, slots: tuple[Slot, ...], run: Callable[..., Any] | None, weak: Mapping[str, object],
    params: dict[str, int], shapes: dict[str, tuple[int, ...]], rng: np.random.Generator, number: int,
) -> Case | None:  # fmt: skip
    nest = read.nest
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    for s in slots:
        if s.role == "buffer":
            inputs[s.name] = _array(shapes[s.name], s.type, rng, number)
        elif s.role == "extent":
            inputs[s.name] = cell(shapes[s.of[0]][s.of[1]], s.type)
        elif s.name in params:
            inputs[s.name] = cell(params[s.name], s.type)
        else:
            inputs[s.name] = np.asarray(_array((), s.type, rng, number))
            if s.name in read.truths:
                inputs[s.name] %= 2
    spoiled = leaves_arrays(nest, params, shapes, lambda buffer: _range(inputs[buffer]))
    if spoiled:
        return None
    results = _by_python(read, slots, run, weak, inputs) if run is not None else None
    if results is None:
        results = _by_interpreter(read, inputs, params)
    if results is None:
        return None
    unused = {x.name for x in nest.scalars if not x.live_after}
    expected = tuple(None if s.name in unused else results[s.name] for s in slots)
    return Case(tuple(inputs[s.name] for s in slots), expected)


_Arrays = dict[str, np.ndarray[Any, Any]]


def _by_python(
    read: FunctionRead, slots: tuple[Slot, ...], run: Callable[..., Any], weak: Mapping[str, object],
    inputs: _Arrays,
) -> _Arrays | None:  # fmt: skip
    """The loops themselves; None where Python raises, as of the square root of a negative number."""
    copies = {name: np.array(x, copy=True) for name, x in inputs.items()}
    arguments: dict[str, Any] = {}
    for s in slots:
        source = read.variables.get(s.name, s.name)
        if s.role == "buffer":
            arguments[source] = copies[s.name]
        elif s.role != "extent" and s.name not in read.derived:
            value = copies[s.name][()]
            if isinstance(s.type, RecordType):
                value = np.void(value.item(), dtype_of(s.type))
            arguments[source] = weak[s.name](value) if s.name in weak else value  # type: ignore[operator]
    try:
        with np.errstate(all="ignore"):
            results = iter(run(**arguments))
    except (ArithmeticError, ValueError, IndexError, TypeError):
        return None
    for s in slots:
        if s.role == "scalar":
            copies[s.name] = cell(next(results), s.type)
    return copies


def _by_interpreter(read: FunctionRead, inputs: _Arrays, params: Mapping[str, int]) -> _Arrays | None:
    """What the nest means, by the evaluator of the representation."""
    nest = read.nest
    buffers = {b.name: BufferValue(_values(inputs[b.name]), inputs[b.name].shape) for b in nest.buffers}
    known: dict[str, Any] = {p.name: _values(inputs[p.name])[0] for p in nest.params}
    scalars: dict[str, Any] = {s.name: _values(inputs[s.name])[0] for s in nest.scalars}
    try:
        run_nest(nest, known, buffers, scalars)
    except (EvaluationError, ArithmeticError, ValueError):
        return None
    out = dict(inputs)
    for b in nest.buffers:
        out[b.name] = np.array(buffers[b.name].data, dtype=inputs[b.name].dtype).reshape(inputs[b.name].shape)
    for s in nest.scalars:
        out[s.name] = cell(scalars[s.name], s.type)
    return out


def _values(a: np.ndarray[Any, Any]) -> list[Any]:
    return [int(x) if isinstance(x, bool) else x for x in a.reshape(-1).tolist()]


def _range(values: np.ndarray[Any, Any]) -> tuple[int, int] | None:
    if values.dtype.kind not in "iub" or not values.size:
        return None
    return int(values.min()), int(values.max())


def _array(
    shape: tuple[int, ...], t: ScalarType | RecordType, rng: np.random.Generator, number: int
) -> np.ndarray[Any, Any]:
    """Positive values at first, of both signs later; integers between 0 and 3 (they may be indices)."""
    if isinstance(t, RecordType):
        out: np.ndarray[Any, Any] = np.zeros(shape, dtype_of(t))
        for name, f in t.fields:
            out[name] = _array(shape, f, rng, number)
        return out
    if t.is_float:
        low = 0.25 if number < 2 else -2.0
        values: Any = rng.uniform(low, 2.0, shape)
    else:
        values = rng.integers(0, 2 if t.kind == "bool" else 4, shape)
    converted: np.ndarray[Any, Any] = np.asarray(values).astype(dtype_of(t))
    return converted


def interpreted_cases(read: FunctionRead, lifted: LiftedNest, slots: tuple[Slot, ...]) -> list[Case]:
    """The same for a program that the loops do not spell out, by the reference interpreter."""
    out: list[Case] = []
    for number, sizes in enumerate(_SIZES):
        made = _inputs(read, sizes, number)
        if made is None:
            continue
        params, shapes = made
        points = _points(read.nest, params)
        if points is None or points > _MOST_INTERPRETED:
            continue
        rng = np.random.default_rng(number + 1)
        inputs: _Arrays = {}
        for s in slots:
            if s.role == "buffer":
                inputs[s.name] = _array(shapes[s.name], s.type, rng, number)
            elif s.role == "extent":
                inputs[s.name] = cell(shapes[s.of[0]][s.of[1]], s.type)
            elif s.name in params:
                inputs[s.name] = cell(params[s.name], s.type)
            else:
                inputs[s.name] = _array((), s.type, rng, number)
        if leaves_arrays(read.nest, params, shapes, lambda buffer: None):
            continue
        names = [b.name for b in read.nest.buffers]
        buffers = {n: BufferValue(_values(inputs[n]), inputs[n].shape) for n in names}
        known: dict[str, Any] = {p.name: _values(inputs[p.name])[0] for p in read.nest.params}
        try:
            run_steps(lifted.program, known, buffers)
        except (EvaluationError, ArithmeticError, ValueError):
            continue
        results = dict(inputs)
        for name, value in buffers.items():
            results[name] = np.array(value.data, dtype=inputs[name].dtype).reshape(inputs[name].shape)
        out.append(Case(tuple(inputs[s.name] for s in slots), tuple(results[s.name] for s in slots)))
    return out
