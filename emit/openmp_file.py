"""One file for the OpenMP nests of a source file (`--style outline`); header, Makefile.

    gemm_openmp_mdh.c     structures, the user's functions, a kernel for each nest
    gemm_openmp_mdh.h     the prototypes, for C and C++
    gemm_openmp_mdh.mk    how the object is made, and what is linked with it

Kernels are those of the inline style (``KernelRequest.apart``); a search compiles and runs files like
these, and tests compile the three as a user would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emit.beside_file import common, header_text
from emit.frames import template
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
    records = common(parts, [dict(p.records) for p in parts])
    functions = common(parts, [dict(p.functions) for p in parts])
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
    header = header_text(name, [p.prototype for p in parts])
    return OpenmpFile(name, text, header, template("openmp.mk.j2").render(name=name, file=file))
