"""Headers that the preprocessor does not find -> where in the tree they lie, or what they are made from.

    MDH002 header `defs.h` is not found, 40 files   ->   one finding: "and in 39 more files",
                                                         "it lies in `include`: `-- cc -Iinclude`"

Only names of files are looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from mdh_lift.findings import Finding

_MISSING = re.compile(r"header `([^`]+)` is not found")
_TEMPLATES = (".in", ".hin", ".h.in", ".cmake", ".in.cmake", ".h.cmake")
_MOST_FOLDERS = 5000  # that are looked into
_SHOWN = 3  # directories or files that are named


def helped(findings: Sequence[Finding], together: bool) -> list[Finding]:
    """The findings; those about missing headers say where these lie, if that is below the working directory.

    ``together``: findings of different files about the same header become one, the first.
    """
    if not any(map(_name, findings)):
        return list(findings)
    advice = _advice([name for name in dict.fromkeys(map(_name, findings)) if name])
    out: list[Finding] = []
    files: dict[str, list[str]] = {}
    for f in findings:
        name = _name(f)
        if name:
            files.setdefault(name, []).append(f.file)
            if together and len(files[name]) > 1:
                continue
            if name in advice:
                f = replace(f, diagnostic=replace(f.diagnostic, help=advice[name]))
        out.append(f)
    return [_with_others(f, files.get(_name(f), ())) for f in out] if together else out


def _name(f: Finding) -> str:
    """Of the header that a finding misses."""
    found = _MISSING.match(f.diagnostic.message) if f.diagnostic.code == "MDH002" else None
    return found[1] if found else ""


def _with_others(f: Finding, files: Sequence[str]) -> Finding:
    others = [file for file in dict.fromkeys(files) if file != f.file]
    if not others:
        return f
    told = ", ".join(others[:_SHOWN]) + (", ..." if len(others) > _SHOWN else "")
    note = f"and in {len(others)} more file{'s' * (len(others) != 1)}: {told}"
    return replace(f, diagnostic=replace(f.diagnostic, notes=(*f.diagnostic.notes, note)))


def _advice(names: Sequence[str]) -> dict[str, str]:
    """For each header, as it is written between quotes, what to do."""
    lies: dict[str, list[str]] = {}
    made: dict[str, list[str]] = {}
    by_base: dict[str, list[str]] = {}
    for name in names:
        by_base.setdefault(name.rsplit("/", 1)[-1], []).append(name)
    for folder, file in _files():
        for name in by_base.get(file, ()):
            path = str(Path(folder, file))
            if path == name or path.endswith("/" + name):
                lies.setdefault(name, []).append(path[: -len(name)].rstrip("/") or ".")
        for end in _TEMPLATES:
            stem = file.removesuffix(end)
            for name in () if stem == file else (*by_base.get(stem, ()), *by_base.get(stem + ".h", ())):
                made.setdefault(name, []).append(str(Path(folder, file)))
    advice = {name: _configure(name, found) for name, found in made.items()}
    return advice | {name: _include(found) for name, found in lies.items()}


def _include(folders: list[str]) -> str:
    folders = sorted(set(folders), key=lambda f: (f.count("/"), f))
    if len(folders) == 1:
        return f"it lies in `{folders[0]}`: `-- cc -I{folders[0]}`, or `flags` in mdh-lift.toml"
    told = ", ".join(f"`{f}`" for f in folders[:_SHOWN]) + (", ..." if len(folders) > _SHOWN else "")
    return f"it lies in {told}: name the right one (`-- cc -I{folders[0]}`)"


def _configure(name: str, templates: list[str]) -> str:
    return (
        f"configuring the tree makes it from `{sorted(templates)[0]}`: do that first "
        "(`./configure`, or `cmake -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON`), then name its directory"
    )


def _files() -> Iterator[tuple[str, str]]:
    """Directory and name of the files below the working directory."""
    for root, directories, names in islice(os.walk("."), _MOST_FOLDERS):
        directories[:] = sorted(d for d in directories if not d.startswith("."))
        for name in names:
            yield root, name


__all__ = ["helped"]
