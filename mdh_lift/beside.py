"""Generated files beside a source file: the kernels of its nests for a GPU, or with `--style outline`.

    gemm.c  ->  gemm_cuda_mdh.cu     gemm_cuda_mdh.h     gemm_cuda_mdh.mk        of all its nests for CUDA
                gemm_opencl_mdh.c    gemm_opencl_mdh.h   gemm_opencl_mdh.mk      for OpenCL
                gemm_openmp_mdh.c    gemm_openmp_mdh.h   gemm_openmp_mdh.mk      and for the processor

A kernel region of the source includes the header.  The last line of each file names the source and has a
hash of what is before it, so that an edit is noticed, and a file that somebody else wrote is never touched.
Files are written before the source that includes them, and removed behind the one that did.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mdh_core.diagnostics import Diagnostic, refuse
from mdh_lift.files import Change, read_source, remove, write_atomic
from mdh_lift.splice import Region

if TYPE_CHECKING:  # `check` emits nothing
    from emit.gpu_file import GpuFile
    from emit.openmp_file import OpenmpFile

_LAST = re.compile(
    rb"^(?:/\*|\#) mdh-lift end (?P<name>\S+) source=(?P<source>\S+) sum=(?P<sum>[0-9a-f]{16})(?: \*/)?"
    rb"[ \t\r]*\n?",
    re.MULTILINE,
)
_INCLUDE = re.compile(rb'^#include "(?P<name>\w+_(?P<target>cuda|opencl|openmp)_mdh)\.h"\s*$', re.MULTILINE)
_SUFFIXES = (".cu", ".c", ".h", ".mk")


def file_name(source: str, target: str) -> str:
    """``gemm_cuda_mdh``: of the files, without suffix; letters, digits and `_`."""
    return re.sub(r"\W", "_", f"{Path(source).stem}_{target}_mdh", flags=re.ASCII)


def directory_of(source: str, root: Path) -> str:
    """``src/solver``: the directory of a source from the root of the configuration, where the lock file is.

    Empty in the root and outside of it, where a path says something about one machine only.
    """
    place, base = (Path(os.path.realpath(p)) for p in (Path(source).parent, root))
    below = place != base and place.is_relative_to(base)
    return place.relative_to(base).as_posix() if below else ""


def include(name: str) -> str:
    """What stands in a kernel region."""
    return f'#include "{name}.h"'


def included(regions: Iterable[Region]) -> dict[str, str]:
    """Names of the files that regions include, with their targets."""
    found: dict[str, str] = {}
    for region in regions:
        m = _INCLUDE.search(region.text) if region.kind == "kernel" else None
        if m is not None:
            found[m["name"].decode()] = m["target"].decode()
    return found


def suffix_of(target: str) -> str:
    """Of the file that holds the kernels."""
    return ".cu" if target == "cuda" else ".c"


def files(source: str, file: GpuFile | OpenmpFile, target: str, force: bool = False) -> list[Change]:
    """The files as they shall be.

    Raises ``Refusal`` MDH502 where one was edited and ``force`` is not given, MDH803 where one exists that
    was not generated for this source.
    """
    texts = {suffix_of(target): file.text, ".h": file.header, ".mk": file.make}
    changes = []
    for suffix, text in texts.items():
        path = Path(source).with_name(file.name + suffix)
        old = _content(path)
        if old is not None:
            _refuse_foreign(path, old, source)
            if not force and _state(old) == "edited":
                raise refuse("MDH502", f"generated file `{path.name}` was edited", file=str(path),
                             help="`--force` overwrites the edit, `mdh-lift revert -w` drops it")  # fmt: skip
        changes.append(Change(str(path), old, _signed(path.name, Path(source).name, text)))
    return changes


def without(source: str, names: Iterable[str]) -> list[Change]:
    """The removal of files of these names, of those that exist."""
    changes = []
    for name in names:
        for suffix in _SUFFIXES:
            path = Path(source).with_name(name + suffix)
            old = _content(path)
            if old is not None and _origin(old) == word(Path(source).name):
                changes.append(Change(str(path), old, None))
    return changes


def faults(source: str, regions: Sequence[Region]) -> list[Diagnostic]:
    """What is wrong with the files that regions include: missing (MDH501) or edited (MDH502).

    The fragment for a Makefile may be missing: not everybody needs it.
    """
    found = []
    for name, target in included(regions).items():
        for suffix in (suffix_of(target), ".h", ".mk"):
            path = Path(source).with_name(name + suffix)
            data = _content(path)
            is_ours = data is not None and _origin(data) == word(Path(source).name)
            if suffix == ".mk" and not is_ours:
                continue
            if data is None or not is_ours:
                found.append(Diagnostic(
                    "MDH501", f"splice is stale: `{path.name}` is missing", source,
                    help=f"`mdh-lift -w {again(target)}{source}` makes it again",
                ))  # fmt: skip
            elif _state(data) == "edited":
                found.append(Diagnostic(
                    "MDH502", f"generated file `{path.name}` was edited", source,
                    help="`--force` overwrites the edit, `mdh-lift revert -w` drops it",
                ))  # fmt: skip
    return found


def again(target: str) -> str:
    """The options with which files like those of a target are made."""
    return f"--target {target} " + ("--style outline " if target == "openmp" else "")


def write(change: Change, source: str) -> None:
    """Make a change of a file beside a source.  Raises ``Refusal`` MDH507, MDH803."""
    if change.new is None:
        assert change.old is not None
        remove(change.path, change.old)
    else:
        write_atomic(change.path, change.new, change.old, like=source)


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none.  Raises ``Refusal`` MDH001."""
    return read_source(str(path)).data if path.exists() else None


# --------------------------------------------------------------------------- the last line


def _signed(name: str, source: str, text: str) -> bytes:
    body = text.rstrip("\n").encode() + b"\n"
    mark = f"mdh-lift end {name} source={word(source)} sum={_sum(body)}"
    return body + (f"# {mark}\n" if name.endswith(".mk") else f"/* {mark} */\n").encode()


def word(source: str) -> str:
    """The name of a file without blanks, and without what could end a comment."""
    return re.sub(r"[^\w.-]", lambda m: "".join(f"%{b:02x}" for b in m[0].encode("utf-8", "surrogateescape")),
                  source, flags=re.ASCII)  # fmt: skip


def _sum(body: bytes) -> str:
    return hashlib.sha256(body.replace(b"\r\n", b"\n")).hexdigest()[:16]


def _state(data: bytes) -> str:
    m = _LAST.search(data)
    intact = m is not None and m.end() == len(data) and m["sum"].decode() == _sum(data[: m.start()])
    return "fresh" if intact else "edited"


def _origin(data: bytes) -> str:
    """The name of the source that a file was generated for; empty for files of others."""
    m = _LAST.search(data)
    return m["source"].decode() if m is not None else ""


def _refuse_foreign(path: Path, data: bytes, source: str) -> None:
    other = _origin(data)
    if other != word(Path(source).name):
        renamed = f"it was generated for {other}: give one of the sources another name"
        advice = renamed if other else "move it away"
        raise refuse("MDH803", f"`{path.name}` exists and was not generated for {Path(source).name}",
                     file=str(path), help=advice)  # fmt: skip
