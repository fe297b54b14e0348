"""Arrays in device memory: objects with ``__cuda_array_interface__``, as those of CuPy, Numba and PyTorch.

    object -> Held(view, stream) -> view's address as an argument of a kernel for CUDA

The view is a NumPy array over the device's address: dtype, shape, strides and flags are asked of it as of any
other array, its elements are never touched on the host.  Nothing is imported: the protocol (version 3) is a
dict.  What a kernel reads must be there when it starts, so the stream that the dict names is waited for.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_NEVER = (np.ndarray, np.generic, int, float, complex, str, bytes, type(None), types.ModuleType, type)


@dataclass(frozen=True, slots=True)
class Held:
    """An array in device memory.  ``stream``: a handle of CUDA, 0 where there is nothing to wait for."""

    array: Any  # as it was given
    view: np.ndarray[Any, Any]
    stream: int


class _Described:
    """What NumPy makes a view of; keeps the array alive."""

    def __init__(self, array: object, interface: dict[str, Any]) -> None:
        self.array, self.__array_interface__ = array, interface


def in_device_memory(value: object) -> bool:
    """Does the value follow the protocol?"""
    return not isinstance(value, _NEVER) and getattr(value, "__cuda_array_interface__", None) is not None


def held(value: Any, where: str) -> Held:
    """A value that follows the protocol.  Raises ``ValueError`` for what kernels cannot take.

    ``where``: the argument, as messages name it.
    """
    given: Mapping[str, Any] = value.__cuda_array_interface__
    if given.get("mask") is not None:
        raise ValueError(f"{where} has a mask, which kernels do not know")
    stream = given.get("stream")
    if stream == 0:
        raise ValueError(f"{where} names the stream 0, which the protocol forbids; 1 is the default one")
    interface = {name: given[name] for name in ("shape", "typestr", "data")}
    interface |= {"strides": given.get("strides"), "version": 3}
    view = np.asarray(_Described(value, interface))
    if view.dtype.kind == "V" and given.get("descr"):
        view = view.view(np.lib.format.descr_to_dtype(given["descr"]))
    return Held(value, view, int(stream or 0))


def is_view(array: np.ndarray[Any, Any]) -> bool:
    """Is it the view of an array in device memory?"""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, _Described)


def extremes(array: Any) -> tuple[int, int] | None:
    """The least and the greatest element, found by the array itself; None where it cannot tell."""
    try:
        return int(array.min()), int(array.max())
    except (AttributeError, TypeError, ValueError):
        return None


def ready(library: ctypes.CDLL, name: str, array: Held) -> None:
    """Waits until what is in the array is there.

    Raises ``ValueError`` where it is on another device than kernels run on, ``RuntimeError`` where its stream
    fails.
    """
    if not array.view.size:
        return
    library.mdh_held_wait.argtypes = library.mdh_held_on.argtypes = [ctypes.c_void_p]
    device, current = library.mdh_held_on(array.view.ctypes.data), library.mdh_held_here()
    if device >= 0 and device != current:
        raise ValueError(
            f"{name} is on device {device}, and kernels run on device {current} now; "
            f"select it first, in CuPy by `with cupy.cuda.Device({device}):`"
        )
    if array.stream and not library.mdh_held_wait(array.stream):
        raise RuntimeError(f"{name}: CUDA cannot wait for its stream {array.stream:#x}")
