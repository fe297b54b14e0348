"""What a caller passes, against what is declared: each error names the argument and what would help.

Arrays are NumPy's, or the views of arrays in device memory (``device_arrays``); none is read here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from frontend_py.kinds import Array, numpy_name
from frontend_py.read import FunctionRead
from mdh_core.expr import RecordType
from mdh_lift.python.device_arrays import in_device_memory, is_view
from mdh_lift.python.scope import Records, type_of

Arrays = Mapping[str, np.ndarray[Any, Any]]
Where = Callable[[str], str]  # a variable of the source, as messages name it


def apart(arrays: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Do arrays share no memory?"""
    return not any(np.may_share_memory(a, b) for a, b in itertools.combinations(arrays, 2))


def described(value: object) -> str:
    """What a value is that kernels do not take."""
    if isinstance(value, np.ndarray | np.generic):
        return f"of dtype {value.dtype}, not a NumPy array or a number that C has"
    if in_device_memory(value):
        return 'an array in device memory, which needs `target="cuda"`'
    kind = "an integer beyond 64 bits" if isinstance(value, int) else f"of type {type(value).__name__}"
    return f"{kind}, not a NumPy array or a number that C has"


def number(name: str, value: object, dtype: np.dtype[Any]) -> Any:
    """A number in the declared type; raises where it does not fit."""
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"argument `{name}` is an array, declared as the number {dtype}")
    if dtype.kind in "iu" and isinstance(value, float | np.floating):
        raise TypeError(f"argument `{name}` is a {type(value).__name__}, declared {dtype}")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not info.min <= int(value) <= info.max:  # type: ignore[call-overload]
            raise OverflowError(f"argument `{name}` is {value}, which does not fit {dtype}")
    return dtype.type(value)


def check_array(where: str, name: str, value: object, kind: Array, records: Records) -> None:
    """Raises ``TypeError`` or ``ValueError`` where a value is not the array that is declared."""
    if not isinstance(value, np.ndarray):
        said = described(value) if in_device_memory(value) else f"a {type(value).__name__}, not a NumPy array"
        raise TypeError(f"{where} is {said}")
    t = type_of(value.dtype, records)
    if t != kind.element:
        if (
            isinstance(t, RecordType)
            and isinstance(kind.element, RecordType)
            and t.fields == kind.element.fields
        ):
            return
        wanted = numpy_name(kind.element)
        raise TypeError(
            f"{where} has dtype {value.dtype}, declared {wanted}; pass `{name}.astype({wanted!r})`"
            if not isinstance(kind.element, RecordType)
            else f"{where} has dtype {value.dtype}, declared {wanted}"
        )
    if kind.extents is not None and value.ndim != len(kind.extents):
        raise ValueError(f"{where} has {value.ndim} dimensions, declared with {len(kind.extents)}")


def check_layout(read: FunctionRead, written: Collection[str], arrays: Arrays, where: Where) -> None:
    """Raises ``ValueError`` for strides, alignment, read-only outputs, and what ``restrict`` forbids."""
    for name, a in arrays.items():
        shown = where(read.variables[name])
        if not a.flags.c_contiguous:
            raise ValueError(
                f"{shown} has strides {a.strides} for shape {a.shape}, which is not C-contiguous; "
                + ("pass a copy that is" if is_view(a) else "pass `np.ascontiguousarray(...)`")
            )
        if not a.flags.aligned:
            raise ValueError(f"{shown} is not aligned; pass a copy")
        if name in written and not a.flags.writeable:
            raise ValueError(f"{shown} is read-only, and the function writes it")
    for name, a in arrays.items():
        if not read.nest.buffer(name).restrict:
            continue
        for other, c in arrays.items():
            if other != name and {name, other} & set(written) and np.may_share_memory(a, c):
                raise ValueError(
                    f"{where(read.variables[name])} is declared `restrict` and overlaps "
                    f"`{read.variables[other]}`"
                )


def check_shapes(read: FunctionRead, arrays: Arrays, ints: Mapping[str, int], where: Where) -> None:
    """Raises ``ValueError`` where an array has not the declared extents."""
    for b in read.nest.buffers:
        a = arrays[b.name]
        for k, extent in enumerate(b.extents):
            if extent is None:
                continue
            wanted = extent.evaluate(dict(ints))
            if (a.shape[k] < wanted) if k == 0 else (a.shape[k] != wanted):
                declared = "".join(f"[{'' if e is None else e}]" for e in b.extents)
                raise ValueError(
                    f"{where(read.variables[b.name])} has shape {a.shape}, declared "
                    f"{declared} with {extent} = {wanted}"
                )
