"""The library's face: what the command can do, a program can do.

    import mdh_lift

    report = mdh_lift.check_file("gemm.c")          # read and lift, nothing runs
    change = mdh_lift.revert_file("gemm.c")         # old and new bytes, nothing is written
    mdh_lift.write_atomic(change.path, change.new, change.old)

Names are loaded when they are first used, so that a quick command does not wait for isl.
"""

from __future__ import annotations

import importlib

from mdh_lift.version import VERSION

__version__ = VERSION

_HOME = {
    "Change": "files",
    "FileReport": "pipeline",
    "Improvement": "improve",
    "NestReport": "pipeline",
    "Options": "pipeline",
    "check_file": "pipeline",
    "check_source": "pipeline",
    "revert_file": "pipeline",
    "splice_file": "pipeline",
    "SplicePart": "splice",
    "write_atomic": "files",
}

# what is written with the decorator for Python, see docs/python.md
_PYTHON = (
    "Buffer", "CC", "MdhExpression", "MdhFunction", "MdhWarning", "PS", "PW", "add", "and_", "argmax",
    "argmin", "assume", "cc", "combine_ops", "fp", "fp32", "fp64", "inp", "inp_view", "int16", "int32",
    "int64", "int8", "logical_and", "logical_or", "maximum", "md_hom", "mdh", "minimum", "mul", "name",
    "noalias", "or_", "out", "out_view", "prange", "ps", "pw", "scalar_max", "scalar_min",
    "scalar_plus", "scalar_times", "sizes", "target", "truncdiv", "truncmod", "uint16", "uint32",
    "uint64", "uint8", "xor",
)  # fmt: skip
_HOME |= dict.fromkeys(_PYTHON, "python")

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module `mdh_lift` has no attribute `{name}`")
    return getattr(importlib.import_module(f"mdh_lift.{_HOME[name]}"), name)
