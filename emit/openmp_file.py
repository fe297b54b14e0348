"""One file for the OpenMP nests of a source file (`--style outline`); header, Makefile.

    gemm_openmp_mdh.c     structures, the user's functions, a kernel for each nest
    gemm_openmp_mdh.h     the prototypes, for C and C++
    gemm_openmp_mdh.mk    how the object is made, and what is linked with it

Kernels are those of the inline style (``KernelRequest.apart``); a search compiles and runs files like
these, and tests compile the three as a user would.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from emit.frames import template
from mdh_core.diagnostics import refuse
from mdh_core.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class OpenmpPart:
    """A nest of the file: its kernel, and the call at the nest (nonzero: done).

    title      the nest and where it stands, for diagnostics
    records    structure types that it needs: name and declaration
    functions  the user's functions that it calls: name and lines
    exact      it has `fp(exact)`
    """

    name: str
    title: str
    prototype: str
    call: str
    text: str
    records: tuple[tuple[str, str], ...] = ()
    functions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exact: bool = False
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class OpenmpFile:
    """``text`` is `<name>.c`, ``header`` `<name>.h`, ``make`` `<name>.mk`."""

    name: str
    text: str
    header: str
    make: str


def openmp_file(name: str, source: str, parts: Sequence[OpenmpPart]) -> OpenmpFile:
    """The file of the nests of ``source``, a file's name without directories.

    name: C identifier; of the files, without suffix.  Raises ``Refusal`` MDH417 where two nests mean
    different structures, or different functions, by one name.
    """
    known: dict[str, object] = {}
    for part in parts:
        for what, declaration in (*part.records, *part.functions):
            if known.setdefault(what, declaration) != declaration:
                headline = f"`{what}` of {part.title} is something else in another nest of the file"
                raise refuse("MDH417", headline, part.span, help="give one of them another name")
    records = dict(r for p in parts for r in p.records)
    functions = dict(f for p in parts for f in p.functions)
    file = f"{name}.c"
    text = template("openmp_file.c.j2").render(
        name=name,
        file=file,
        source=source,
        records=list(records.values()),
        functions=list(functions.values()),
        parts=parts,
        exact=any(p.exact for p in parts),
    )
    prototypes = [p.prototype.replace("_Bool", "bool") for p in parts]
    header = template("beside.h.j2").render(
        name=name, prototypes=prototypes, bools=any(re.search(r"\bbool\b", p) for p in prototypes)
    )
    return OpenmpFile(name, text, header, template("openmp.mk.j2").render(name=name, file=file))
