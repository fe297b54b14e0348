"""Which program may be started as the compiler that a project names.

A compile command in, an absolute path out, or why not.  Compile databases and configuration files come with
the sources, so they may only choose among the C compilers that are installed: known by name, in an absolute
directory of PATH or by an absolute path, and outside of the project.  What the user wrote after ``--`` is
their own word.  Shown right by ``tests/test_hostile_trees.py``, which counts what is executed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

# those that a look at a file starts
_READERS = re.compile(r"(.*-)?(cc|gcc|clang|icx|c99|c11)(-\d+(\.\d+)*)?(\.exe)?")
# those that candidates are compiled with
_COMPILERS = re.compile(
    r"(.*-)?(cc|gcc|clang|icx|icc|c99|c11|c17|mpicc|mpiicc|mpiicx|mpicc\.\w+|nvc|pgcc|armclang|fccpx|fcc|xlc|tcc"
    r"|amdclang|craycc)(-\d+(\.\d+)*)?(\.exe)?"
)


def is_reader(name: str) -> bool:
    """Does a program of this name take the flags that reading needs?"""
    return _READERS.fullmatch(Path(name).name) is not None


def search(name: str, trees: tuple[str, ...] = ()) -> str | None:
    """The program of this name in the first absolute directory of PATH that has it outside of the trees."""
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = Path(directory, name)
        if Path(directory).is_absolute() and _runs(path) and not _inside(path, trees):
            return str(path)
    return None


def why_not(compiler: str, trees: tuple[str, ...]) -> str:
    """Why the compiler that a project names is not started; empty where it may be.

    ``trees``: directories of the project; none where the user named the compiler.
    """
    if not compiler or not trees:
        return ""
    path = Path(compiler)
    if _COMPILERS.fullmatch(path.name) is None:
        return "it is no known C compiler by its name"
    if path.is_absolute():
        return "it lies in the project" if _inside(path, trees) else ""
    if os.sep in compiler:
        return "its path is relative"
    if search(compiler, trees) is None and search(compiler) is not None:
        return "it lies in the project"
    return ""


def found(compiler: str, trees: tuple[str, ...]) -> str | None:
    """Path of a compiler that may be started; None where there is none of that name."""
    path = Path(compiler)
    if path.is_absolute():
        return compiler if _runs(path) and not _inside(path, trees) else None
    return search(compiler, trees) if os.sep not in compiler else None


def project_of(source: str, *places: str) -> tuple[str, ...]:
    """The directories of a source's project: its repository or its own directory, and the places."""
    directory = Path(os.path.realpath(source)).parent
    repository = next((d for d in (directory, *directory.parents) if (d / ".git").exists()), directory)
    known = {str(repository), *(str(Path(os.path.realpath(place))) for place in places if place)}
    return tuple(sorted(known - {os.sep}))


def _runs(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except (OSError, ValueError):
        return False


def _inside(path: Path, trees: tuple[str, ...]) -> bool:
    try:
        names = {path.absolute(), path.resolve(), path.parent.resolve() / path.name}
    except (OSError, RuntimeError, ValueError):
        return True
    return any(name.is_relative_to(tree) for tree in trees for name in names)
