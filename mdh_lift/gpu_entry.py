"""A nest of Python for a GPU: the file of its kernels, and the C file whose entry takes pointers.

    LiftedNest, values of its integer parameters -> entry.Program with ``device``

What the nest touches of an array is copied to the device, and how much that is must be known.  In Python
every array knows its length: where nothing is declared, the length becomes one more parameter of the emitted
function and one more slot of the entry (role "extent"), so that arrays indexed with data can be copied, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from emit.interface_text import declared
from lifter.lift import LiftedNest
from lowering.device import Device
from mdh_core.expr import INT64, Affine
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Param, Sequential, Step
from mdh_lift.entry import ENTRY, Program, Slot, beside
from mdh_lift.given import completed
from mdh_lift.gpu_plans import gpu_plan

_Extents = tuple[Affine | None, ...]


def program(
    found: LiftedNest,
    target: str,
    params: Mapping[str, int],
    point: Mapping[str, object] | None = None,
    lines: str = "",
    entry: str = ENTRY,
    device: Device | None = None,
) -> Program:
    """The files for a configuration that suits these values of the integer parameters.

    ``found`` was ``entry.prepared``; ``point``: values instead of the default's, which is for ``device`` or
    else a usual one.  Raises ``Refusal`` MDH417, and ``ConfigurationError`` for a point that is none of the
    nest.
    """
    whole, extents = _with_extents(found)
    plan = gpu_plan(whole, target, params, lines, device=device)
    file = plan.file(completed(plan, point))
    made = beside(found, file.header, file.call, extents, entry)
    return replace(made, target=target, device=file.text)


def _with_extents(found: LiftedNest) -> tuple[LiftedNest, tuple[Slot, ...]]:
    """The nest with a parameter for every length that is not declared, and the slots of these."""
    nest = found.nest
    taken = {p.name for p in nest.params} | {s.name for s in nest.scalars}
    taken |= {b.name for b in (*nest.buffers, *found.temporaries)}
    taken |= _names(found.program)
    slots: list[Slot] = []
    changed: dict[str, Buffer] = {}
    for b in nest.buffers:
        extents = list(b.extents)
        for k, e in enumerate(extents):
            if e is None:
                name = f"{b.name}_extent{k or ''}"
                while name in taken:
                    name += "_"
                taken.add(name)
                slots.append(Slot("extent", name, INT64, (b.name, k)))
                extents[k] = Affine.of(name)
        changed[b.name] = replace(b, extents=tuple(extents))
    params = tuple(Param(s.name, INT64, s.name) for s in slots)
    whole = replace(
        found,
        nest=replace(
            nest, params=(*nest.params, *params), buffers=tuple(changed[b.name] for b in nest.buffers)
        ),
        program=_steps(
            found.program, {b.name: (b.extents, changed[b.name].extents) for b in nest.buffers}, params
        ),
    )
    return whole, tuple(slots)


def _names(steps: tuple[Step, ...]) -> set[str]:
    """What variables of the emitted function may be called."""
    out: set[str] = set()
    for s in steps:
        if isinstance(s, HostLoop):
            out |= {s.iterator} | _names(s.body)
            continue
        out |= declared(s.body if isinstance(s, Sequential) else s.hom.scalar.body)
        out |= {f.name for f in s.functions}
        out |= {d.name for d in s.hom.dims} if isinstance(s, MdhProgram) else set()
    return out


def _steps(
    steps: tuple[Step, ...], extents: Mapping[str, tuple[_Extents, _Extents]], params: tuple[Param, ...]
) -> tuple[Step, ...]:
    """``extents``: as they were, and as they shall be; a flat index that was taken apart has others."""
    out: list[Step] = []
    for s in steps:
        if isinstance(s, HostLoop):
            out.append(replace(s, body=_steps(s.body, extents, params)))
            continue
        buffers = tuple(
            replace(b, extents=extents[b.name][1])
            if b.name in extents and b.extents == extents[b.name][0]
            else b
            for b in s.buffers
        )
        used = {n for b in buffers for e in b.extents if e is not None for n in e.names}
        known = {p.name for p in s.params}
        own = tuple(p for p in params if p.name in used - known)
        out.append(replace(s, buffers=buffers, params=(*s.params, *own)))
    return tuple(out)
