"""One file for all GPU nests of a source file: what they share once, then each nest; header, Makefile.

    gemm_mdh.cu / gemm_mdh.c   runtime, kernels, a host function for each nest
    gemm_mdh.h                 the prototypes, for C and C++
    gemm_mdh.mk                how the object is made, and what is linked with it

Nests share the device with its queue and the memory on it: the k-th array of one nest lies where the k-th
array of another one lay.  Tests compile the three as a user would, and run several nests of one file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from emit.beside_file import common, header_text
from emit.frames import template
from emit.gpu_kernels import GpuKernel
from emit.targets import Target
from mdh_core.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Memory of a nest on the device: a part of an array of the host, or a temporary.

    type      of the elements, in C
    host      the part from `<name>_first` to `<name>_last` is copied to the device
    written   and back
    count     C text of how many elements there are
    whole     C text of the bytes of the whole array from its first element on; 0: not known
    """

    name: str
    type: str
    count: str
    host: bool = False
    written: bool = False
    whole: str = "0"


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A nest of the file: its kernels, its host function, and the call at the nest (nonzero: done).

    name       of the host function; those of its kernels begin with it
    title      the nest and where it stands, for the comment
    prototype  of the host function, without `extern "C"`
    records    structure types that its kernels need: name and declaration
    functions  the user's functions that its kernels call: name and lines
    texts      the lines of each kernel
    head       lines before the device is asked: sizes, assumptions, the parts of arrays, overlaps
    body       lines with the launches
    exact      a reduction or a scan has `fp(exact)`
    rounds     products and sums must not be contracted: see ``mdh_core.rounding``
    rounded    divisions and roots must be rounded as on the host
    """

    name: str
    title: str
    notes: tuple[str, ...]
    prototype: str
    call: str
    records: tuple[tuple[str, str], ...]
    functions: tuple[tuple[str, tuple[str, ...]], ...]
    kernels: tuple[GpuKernel, ...]
    texts: tuple[tuple[str, ...], ...]
    head: tuple[str, ...]
    memory: tuple[DeviceArray, ...]
    body: tuple[str, ...]
    exact: bool = False
    rounds: bool = False
    rounded: bool = False
    span: Span = NO_SPAN

    @property
    def doubles(self) -> bool:
        return any("double" in row for text in self.texts for row in text)


@dataclass(frozen=True, slots=True)
class RegionArray:
    """An array of a data directive: the parameter's name, C text of its address there, the clause.

    clause   copyin: its values are not needed on the host behind the region; create: nor before it; copyout
             and copy: it is copied back at the end.  All but `create` are copied to the device when they are
             used first, as a nest need not write all of the part that it touches.
    """

    name: str
    value: str
    clause: str


@dataclass(frozen=True, slots=True)
class RegionPart:
    """The two functions of a data region; ``name`` is what their names begin with."""

    name: str
    title: str
    arrays: tuple[RegionArray, ...]

    @property
    def begin(self) -> str:
        return f"void {self.name}_begin({', '.join(f'const void *{a.name}' for a in self.arrays) or 'void'})"

    @property
    def end(self) -> str:
        return f"void {self.name}_end(void)"

    @property
    def calls(self) -> tuple[str, str]:
        """What stands before the statement of the directive, and what stands behind it."""
        return f"{self.name}_begin({', '.join(a.value for a in self.arrays)});", f"{self.name}_end();"


@dataclass(frozen=True, slots=True)
class GpuFile:
    """``text`` is `<name>.cu` or `<name>.c`, ``header`` `<name>.h`, ``make`` `<name>.mk`."""

    name: str
    text: str
    header: str
    make: str
    parts: tuple[GpuPart, ...]
    regions: tuple[RegionPart, ...] = ()

    @property
    def call(self) -> str:
        """The call at the only nest."""
        (part,) = self.parts
        return part.call

    @property
    def kernels(self) -> tuple[GpuKernel, ...]:
        return tuple(k for part in self.parts for k in part.kernels)


def gpu_file(
    name: str, parts: Sequence[GpuPart], target: Target, regions: Sequence[RegionPart] = ()
) -> GpuFile:
    """The file of some nests and data regions, whose names differ; at least one nest.

    name: C identifier; of the files, without suffix.  Raises ``Refusal`` (MDH417) where two nests mean
    different structures, or different functions, by one name.
    """
    records = common(parts, [dict(p.records) for p in parts])
    functions = common(parts, [dict(p.functions) for p in parts])
    lines = [row for p in parts for row in p.head]
    exact = any(p.exact or p.rounds for p in parts)
    file = f"{name}{target.suffix}"
    text = template(f"{target.name}{target.suffix}.j2").render(
        name=name,
        file=file,
        parts=parts,
        exact=exact,
        records=list(records.values()),
        functions=[row for rows in functions.values() for row in rows],
        memory=max(len(p.memory) for p in parts) or 1,
        arrays=bool(regions) or any(m.host for p in parts for m in p.memory),
        written=bool(regions) or any(m.written for p in parts for m in p.memory),
        regions=list(regions),
        named=sum(len(r.arrays) for r in regions) or 1,
        kernels=max(len(p.kernels) for p in parts) or 1,
        least=any("mdh_least(" in row for row in lines),
        greatest=any("mdh_greatest(" in row for row in lines),
        addresses=any("uintptr_t" in row for row in lines),
        many=any("mdh_too_many(" in row for p in parts for row in p.body),
        rounded=any(p.rounded for p in parts),
    )
    prototypes = [p.prototype for p in parts]
    prototypes += [text for r in regions for text in (r.begin, r.end)]
    header = header_text(name, prototypes)
    make = template("gpu.mk.j2").render(name=name, file=file, target=target.name, exact=exact)
    return GpuFile(name, _tidy(text), header, make, tuple(parts), tuple(regions))


def _tidy(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text)
