"""Values as the pointers that a kernel's entry takes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from frontend_py.kinds import numpy_name
from mdh_core.expr import INT32, INT64, RecordType, Type


def pointers(values: Sequence[np.ndarray[Any, Any]]) -> Any:
    """An array of the addresses of arrays; they must live as long as the call runs."""
    return (ctypes.c_void_p * max(1, len(values)))(*(v.ctypes.data for v in values))


@functools.cache
def dtype_of(t: Type) -> np.dtype[Any]:
    """The NumPy type of a scalar or record type."""
    found: np.dtype[Any] = np.dtype(
        [(name, dtype_of(f)) for name, f in t.fields] if isinstance(t, RecordType) else numpy_name(t),
        align=isinstance(t, RecordType),
    )
    return found


def cell(value: object, t: Type) -> np.ndarray[Any, Any]:
    """A number or a record in memory of its own."""
    small: np.ndarray[Any, Any]
    if type(value) is int and -(2**31) <= value < 2**31 and t in (INT32, INT64):
        small = np.array(value, dtype_of(t))
        return small
    out: np.ndarray[Any, Any] = np.zeros((), dtype_of(t))
    if value is None:
        return out
    if isinstance(t, RecordType):
        if isinstance(value, tuple):
            out[()] = value
        else:
            record = np.asarray(value)
            for name, _ in t.fields:
                out[name] = record[name]
    else:
        with np.errstate(all="ignore"):
            out[()] = np.asarray(value).astype(out.dtype)
    return out


_TOLERANCE = {4: 2e-4, 8: 1e-9}


def agree(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], exact: bool) -> bool:
    """Equal integers; floats that differ no more than another order of summation explains."""
    if got.dtype.fields is not None:
        return all(agree(got[name], wanted[name], exact) for name in got.dtype.names or ())
    if got.dtype.kind != "f":
        return bool(np.array_equal(got, wanted))
    if not got.size:
        return True
    tolerance = _TOLERANCE.get(got.dtype.itemsize, 1e-4) * (0.05 if exact else 1.0)
    finite = wanted[np.isfinite(wanted)]
    scale = max(1.0, float(np.max(np.abs(finite), initial=0.0)))
    with np.errstate(all="ignore"):
        near = np.abs(got - wanted) <= tolerance * (scale + np.abs(wanted))
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return bool(np.all(near | same))
