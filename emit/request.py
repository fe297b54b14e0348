"""What a kernel is asked for, and what it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from lowering.host_tiles import HostTiles
from lowering.lower import Lowered
from lowering.machine import Machine
from lowering.parameters import Configuration
from mdh_core.ir import Buffer, HostLoop, Param, Step


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """What to write: the steps of a nest, and one configuration per program in the order of the text.

    name          C identifier of the function
    nest          name of the nest, for the header
    lines         "gemm.c:12-18", for the header
    noalias       groups of buffers that the user promises not to overlap
    assume        C conditions over the nest's scalars, tested at run time
    notes         further header lines (configuration, expression)
    temporaries   buffers of the kernel alone; their extents are known before the steps run
    params        what sizes of host loops may mention besides the parameters of the programs
    taken         names that the kernel's own variables must not have (macros of the file)
    host_tiles    tiles of the host loops, in the order of the text; None for those that have none
    regions       of the host loops in that order: should an outermost one be inside of one parallel region?
    known         values of sizes for which there is a second function, with constants in their places
    apart         for a file of its own: the function is external, and names no types of the user's file but
                  those of structures
    """

    name: str
    nest: str
    steps: tuple[Step, ...]
    configurations: tuple[Configuration, ...]
    machine: Machine
    lines: str = ""
    noalias: tuple[tuple[str, ...], ...] = ()
    assume: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    temporaries: tuple[Buffer, ...] = ()
    params: tuple[Param, ...] = ()
    taken: frozenset[str] = frozenset()
    host_tiles: tuple[HostTiles | None, ...] = ()
    regions: tuple[bool, ...] = ()
    known: tuple[tuple[str, int], ...] = ()
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """name, text placed before the enclosing function, and the call at the nest (nonzero: done).

    ``prototype``: of the function, where it has a file of its own; structures are passed as ``void *``.
    For the certificate: the stages of every program, and the host loops that have tiles; ``fixed``: the steps
    with constants for sizes, and the stages of their programs.
    """

    name: str
    text: str
    call: str
    prototype: str = ""
    lowered: tuple[Lowered, ...] = field(default=(), compare=False, repr=False)
    tiled: tuple[tuple[HostLoop, HostTiles], ...] = field(default=(), compare=False, repr=False)
    fixed: tuple[tuple[Step, ...], tuple[Lowered, ...]] = field(default=((), ()), compare=False, repr=False)
