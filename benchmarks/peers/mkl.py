"""MKL as it comes with the wheel ``mkl``."""

from __future__ import annotations

import ctypes
import importlib.metadata

from benchmarks.peers.cblas import Blas
from benchmarks.peers.cblas import prepare as prepare_calls
from benchmarks.peers.serve import Problem, Run


def library() -> Blas:
    """Raises ImportError where it is not installed."""
    for file in importlib.metadata.files("mkl") or ():
        if file.name.startswith("libmkl_rt.so"):
            return Blas(ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL), ctypes.c_int32)
    raise ImportError("the wheel has no libmkl_rt")


def prepare(p: Problem) -> Run | None:
    return prepare_calls(library(), p)
