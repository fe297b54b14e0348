"""What a loop nest means, by running it as plain loops: the other half of "lifting keeps meaning".

The same evaluator and the same ``BufferValue`` as the reference interpreter.  A ``Load`` with fewer
indices than the buffer value has extents (a flat pointer, ``A[i*K + k]``) addresses its elements
linearly in memory order.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from lifter.loop_nest import Loop, LoopNest, NestStmt
from mdh_core.evaluate import Env, EvaluationError, Value, convert, evaluate_scalar, execute
from mdh_core.expr import If
from mdh_core.interpreter import BufferValue


def run_nest(
    nest: LoopNest,
    params: Mapping[str, Value],
    buffers: Mapping[str, BufferValue],
    scalars: MutableMapping[str, Value],
    *,
    max_iterations: int = 1_000_000,
) -> None:
    """Run the nest; updates ``buffers`` and the outer scalars in place.

    ``params`` has a value for every parameter, ``scalars`` the values of the outer scalars before the
    nest (one that is missing has no value: reading it before it is written raises).
    """
    variables: dict[str, Value | None] = {**params, **scalars}
    env = Env(
        variables,
        {f.name: f for f in nest.functions},
        load=lambda buffer, index: buffers[buffer].data[place(buffers[buffer], index)],
        store=lambda buffer, index, value: _store(buffers[buffer], index, value),
        max_iterations=max_iterations,
    )
    _run(nest.body, env)
    for scalar in nest.scalars:
        value = variables.get(scalar.name)
        if value is not None:
            scalars[scalar.name] = value


def _run(body: tuple[NestStmt, ...], env: Env) -> None:
    for s in body:
        if isinstance(s, Loop):
            _loop(s, env)
        elif isinstance(s, If):
            _run(s.then if evaluate_scalar(s.cond, env) else s.other, env)  # type: ignore[arg-type]
        else:
            execute((s,), env)


def _loop(loop: Loop, env: Env) -> None:
    """Bounds are evaluated once; the iterator keeps its final value, as in C."""
    lower, upper = int(evaluate_scalar(loop.lower, env)), int(evaluate_scalar(loop.upper, env))
    lower = int(convert(lower, loop.type))  # `int k = u - 1` of an unsigned 0 starts at -1
    values = range(lower, upper, loop.step)
    for i in values:
        env.variables[loop.iterator] = i
        _run(loop.body, env)
    env.variables[loop.iterator] = convert(lower + len(values) * loop.step, loop.type)


def place(buffer: BufferValue, index: tuple[int, ...]) -> int:
    """Position in the buffer's data; a single index into a buffer of several extents is linear."""
    if len(index) == 1 and len(buffer.extents) != 1:
        if not 0 <= index[0] < len(buffer.data):
            raise EvaluationError(f"element {index[0]} is outside the buffer's {len(buffer.data)}")
        return index[0]
    return buffer.position(index)


def _store(buffer: BufferValue, index: tuple[int, ...], value: Value) -> None:
    buffer.data[place(buffer, index)] = value
