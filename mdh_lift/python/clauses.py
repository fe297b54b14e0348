"""The clauses of a directive as Python objects, for ``@mdh(...)``.

    @mdh(combine_ops(i=cc, k=pw(add)), fp("exact"))
    @mdh(out(w=Buffer[float32]), inp(M=Buffer[float32], v=Buffer[float32]), combine_ops(cc, pw(add)))

Each object knows the text that C's directive has for it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_WORDS: dict[object, str] = {
    operator.add: "+", operator.mul: "*", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    np.add: "+",
    np.multiply: "*", np.bitwise_and: "&", np.bitwise_or: "|", np.bitwise_xor: "^", np.logical_and: "&&",
    np.logical_or: "||", np.minimum: "min", np.maximum: "max", np.fmin: "min", np.fmax: "max", min: "min",
    max: "max", sum: "+",
}  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A combine function that has a name in the directive."""

    text: str


add, mul, argmin, argmax = Function("+"), Function("*"), Function("argmin"), Function("argmax")
and_, or_, xor = Function("&"), Function("|"), Function("^")
logical_and, logical_or = Function("&&"), Function("||")
minimum, maximum = Function("min"), Function("max")


@dataclass(frozen=True)
class Operator:
    """``cc``, ``pw(f)`` or ``ps(f)``."""

    kind: str
    functions: tuple[object, ...] = ()

    @property
    def text(self) -> str:
        return (
            f"{self.kind}({', '.join(map(function_text, self.functions))})" if self.functions else self.kind
        )


cc = CC = Operator("cc")


def pw(*functions: object) -> Operator:
    """Point-wise combination with a function, or with one for each of several results."""
    return Operator("pw", functions)


def ps(*functions: object) -> Operator:
    """Prefix sum with a function."""
    return Operator("ps", functions)


PW, PS = pw, ps


def function_text(f: object) -> str:
    """As the directive spells a combine function."""
    if isinstance(f, Function):
        return f.text
    if isinstance(f, str):
        return f
    if isinstance(f, tuple):
        return f"({', '.join(map(function_text, f))})"
    try:
        if f in _WORDS:
            return _WORDS[f]
    except TypeError:
        pass
    return str(getattr(f, "__name__", f))


@dataclass(frozen=True)
class BufferType:
    """``Buffer[T]``, ``Buffer[T, rank]`` or ``Buffer[T, [extents]]``."""

    dtype: Any
    extents: tuple[object, ...] | None = None


class _Buffer:
    def __getitem__(self, items: Any) -> BufferType:
        dtype, *rest = items if isinstance(items, tuple) else (items,)
        if not rest:
            return BufferType(dtype)
        if len(rest) == 1 and isinstance(rest[0], int):
            return BufferType(dtype, (None,) * rest[0])
        if len(rest) == 1 and isinstance(rest[0], list | tuple):
            rest = list(rest[0])
        return BufferType(dtype, tuple(rest))


Buffer = _Buffer()


@dataclass(frozen=True)
class Clause:
    """One clause; ``buffers``: types that it declares."""

    text: str
    buffers: dict[str, BufferType] = field(default_factory=dict, hash=False)


def operator_text(op: object) -> str:
    return op.text if isinstance(op, Operator) else function_text(op)


def combine_ops(*ops: object, **by_iterator: object) -> Clause:
    """The combine operator of each loop, outermost first or by iterator."""
    items = [operator_text(op) for op in ops]
    items += [f"{name}: {operator_text(op)}" for name, op in by_iterator.items()]
    return Clause(f"combine_ops({', '.join(items)})")


def _buffers(word: str) -> Callable[..., Clause]:
    def clause(*names: str, **types: BufferType) -> Clause:
        return Clause(f"{word}({', '.join([*names, *types])})", types)

    clause.__name__ = word
    return clause


out, inp = _buffers("out"), _buffers("inp")


def name(label: str) -> Clause:
    return Clause(f"name({label})")


def sizes(**values: int) -> Clause:
    """A representative size to choose the kernel for."""
    return Clause(f"sizes({', '.join(f'{n}={v}' for n, v in values.items())})")


def assume(condition: str) -> Clause:
    return Clause(f"assume({condition})")


def noalias(*names: str) -> Clause:
    return Clause(f"noalias({', '.join(names)})")


def fp(policy: str) -> Clause:
    return Clause(f"fp({policy})")


def target(*targets: str) -> Clause:
    return Clause(f"target({', '.join(targets)})")


def clause_of_keyword(word: str, value: object) -> Clause:
    """``combine_ops="cc, pw(+)"``, ``combine_ops=(cc, pw(add))``, ``sizes={"n": 8}``."""
    if isinstance(value, Clause):
        return value
    if isinstance(value, dict):
        if word in ("out", "inp"):
            return Clause(f"{word}({', '.join(value)})", dict(value))
        separator = "=" if word == "sizes" else ": "
        return Clause(f"{word}({', '.join(f'{k}{separator}{operator_text(v)}' for k, v in value.items())})")
    items = value if isinstance(value, tuple | list) else (value,)
    return Clause(f"{word}({', '.join(operator_text(v) for v in items)})")


# --------------------------------------------------------------------------- functions for nests


prange = range


def truncdiv(a: Any, b: Any) -> Any:
    """C's division of integers, which rounds towards zero.

    >>> truncdiv(-7, 2), -7 // 2
    (-3, -4)
    """
    q = a // b
    return q + 1 if q < 0 and q * b != a else q


def truncmod(a: Any, b: Any) -> Any:
    """The remainder of ``truncdiv``, with the sign of ``a``.

    >>> truncmod(-7, 2), -7 % 2
    (-1, 1)
    """
    return a - truncdiv(a, b) * b
