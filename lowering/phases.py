"""The three phases of a configuration as programs that run one after the other, each with one phase.

    staged(program, configuration) -> pieces: (program, phase, form?)+, temporaries

before   a program with cc, pw and ps dimensions, three phases with an order and assignment each (mdh.md 4.3)
after    programs that have one phase; each has no ps dimension, or one ps dimension and else cc

D1 = S1 = R1 and D2 = S2 = R2: one piece.  Otherwise the phases that differ are pieces with a materialised
MDA between them: the de-composition copies every operand to its point, the scalar phase stores every result,
the re-composition combines them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lowering.histogram import OneHot, one_hot
from lowering.loops import size_name
from lowering.machine import SystemModel
from lowering.parameters import AsmLevel, Configuration, Level
from mdh_core.combine import CC, CombineOp
from mdh_core.expr import Affine, Constraint, Operand, Result, Type
from mdh_core.ir import (
    Access,
    Buffer,
    Dim,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    ScalarFunction,
    Store,
)


@dataclass(frozen=True, slots=True)
class Phase:
    """Order and roles of the levels in one phase, by dimension name.

    places   the ASM level of each level: its dimension orders the threads of a block
    """

    order: tuple[tuple[int, str], ...]
    roles: dict[tuple[int, str], str]
    parts: dict[tuple[int, str], int]
    places: dict[tuple[int, str], AsmLevel] = field(default_factory=dict, compare=False)


def phase_of(
    c: Configuration,
    program: MdhProgram,
    model: SystemModel,
    order: tuple[Level, ...],
    assign: tuple[tuple[tuple[int, int], ...], ...],
) -> Phase:
    names = [d.name for d in program.hom.dims]
    roles, parts, places = {}, {}, {}
    for layer in range(model.depth):
        for d, name in enumerate(names):
            roles[layer, name] = model.layers[assign[layer][d][0]].role
            parts[layer, name] = c.num_parts[layer][d]
            places[layer, name] = assign[layer][d]
    return Phase(tuple((layer, names[d]) for layer, d in order), roles, parts, places)



class Temporaries(list[Buffer]):
    """Buffers between stages; ``tag`` keeps those of several programs of a kernel apart."""

    tag = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A program with the phase in which it runs; ``form`` where every point visits one cell."""

    program: MdhProgram
    phase: Phase
    form: OneHot | None = None


def staged(
    program: MdhProgram, c: Configuration, model: SystemModel, tag: str = ""
) -> tuple[tuple[Piece, ...], tuple[Buffer, ...]]:
    """The pieces of a program under a legal configuration, and the temporaries between them."""
    decompose = phase_of(c, program, model, c.decompose_order, c.decompose_assign)
    scalar = phase_of(c, program, model, c.scalar_order, c.scalar_assign)
    recompose = phase_of(c, program, model, c.recompose_order, c.recompose_assign)
    temporaries = Temporaries()
    temporaries.tag = tag
    pieces: list[Piece] = []
    if decompose != scalar:
        copies, program = decomposed(program, temporaries)
        pieces += [Piece(p, decompose) for p in copies]
    if scalar != recompose and program.hom.function is not None:
        first, program = mapped(program, temporaries)
        pieces.append(Piece(first, scalar))
        scalar = recompose
    form = one_hot(program) if decompose == scalar == recompose else None
    if form is not None:
        return (Piece(program, scalar, form),), tuple(temporaries)
    pieces += [Piece(p, scalar) for p in scans_split(program, temporaries)]
    return tuple(pieces), tuple(temporaries)


def temporary(name: str, t: Type, dims: tuple[str, ...], temporaries: Temporaries) -> Buffer:
    name = name.replace("mdh_", f"mdh{temporaries.tag}_")
    buffer = Buffer(name, t, tuple(Affine.of(size_name(d)) for d in dims))
    temporaries.append(buffer)
    return buffer


def decomposed(
    program: MdhProgram, temporaries: Temporaries
) -> tuple[list[MdhProgram], MdhProgram]:
    """Copies of every operand to the points that use it, and the program that reads them there.

    Where there is a domain, the points that use an operand are no box: nothing is copied then.
    """
    if program.hom.domain:
        return [], program
    copies, accesses, buffers = [], [], []
    for k, access in enumerate(program.inp.accesses):
        used = tuple(
            d.name for d in program.hom.dims if any(a.coefficient(d.name) for a in access.index)
        )
        if access.conditional or not used:
            accesses.append(access)
            continue
        t = program.buffer(access.buffer).type
        copy = temporary(f"mdh_operand{k}", t, used, temporaries)
        at = tuple(Affine.of(d) for d in used)
        others = (d.size for d in program.hom.dims if d.name not in used)
        hom = MdHom(
            tuple(program.dim(d) for d in used),
            ScalarFunction((Operand(0, t),)),
            (CC,) * len(used),
            domain=tuple(Constraint(n.span - 1) for n in others if not n.constant),  # else nothing is read
        )
        copies.append(
            replace(
                program,
                name=f"{program.name} operand {k}",
                buffers=(program.buffer(access.buffer), copy),
                inp=InputView((access,)),
                hom=hom,
                out=OutputView((None,), (Store(copy.name, at, Result(0, t)),)),
            )
        )
        buffers.append(copy)
        accesses.append(Access(copy.name, at))
    return copies, replace(
        program, buffers=(*program.buffers, *buffers), inp=InputView(tuple(accesses))
    )


def as_temporaries(
    program: MdhProgram, combine: tuple[CombineOp, ...], prefix: str, temporaries: Temporaries
) -> tuple[MdhProgram, MdhProgram, tuple[Dim, ...]]:
    """The program with ``combine`` whose components go to temporaries, and one that reads them."""
    dims = tuple(
        d for d, op in zip(program.hom.dims, combine, strict=True) if op.kind != "pw"
    )
    reduced = {d.name for d in program.hom.dims} - {d.name for d in dims}
    at = tuple(Affine.of(d.name) for d in dims)
    types = program.component_types
    buffers = tuple(
        temporary(f"{prefix}{c}", t, tuple(d.name for d in dims), temporaries)
        for c, t in enumerate(types)
    )
    first = replace(
        program,
        buffers=(*program.buffers, *buffers),
        hom=replace(program.hom, combine=combine),
        out=OutputView(
            (None,) * len(types),
            tuple(Store(b.name, at, Result(c, b.type)) for c, b in enumerate(buffers)),
        ),
    )
    rest = replace(
        program,
        buffers=(*program.buffers, *buffers),
        inp=InputView(tuple(Access(b.name, at) for b in buffers)),
        hom=MdHom(
            dims,
            ScalarFunction(tuple(Operand(c, t) for c, t in enumerate(types))),
            tuple(program.op(d.name) for d in dims),
            tuple(c for c in program.hom.domain if not c.names & reduced),
        ),
    )
    return first, rest, dims


def mapped(program: MdhProgram, temporaries: Temporaries) -> tuple[MdhProgram, MdhProgram]:
    """The scalar phase alone, and the re-composition of what it stored."""
    every = (CC,) * len(program.hom.dims)
    first, rest, _ = as_temporaries(program, every, "mdh_result", temporaries)
    return first, rest


def scans_split(program: MdhProgram, temporaries: Temporaries) -> list[MdhProgram]:
    """At most one ps dimension per program, and then no pw dimension (mdh.md 5, interchange).

    before   ps(+) in i, pw(+) in j
    after    pw(+) in j to a temporary; ps(+) in i over it
    """
    scanned = program.hom.dims_of("ps")
    if not scanned or (len(scanned) == 1 and not program.hom.dims_of("pw")):
        return [program]
    if program.hom.dims_of("pw"):
        combine = tuple(CC if op.kind == "ps" else op for op in program.hom.combine)
        prefix = "mdh_row"
    else:
        last = scanned[-1].name
        combine = tuple(
            op if op.kind != "ps" or d.name == last else CC
            for d, op in zip(program.hom.dims, program.hom.combine, strict=True)
        )
        prefix = f"mdh_scan{len(scanned)}_"
    first, rest, dims = as_temporaries(program, combine, prefix, temporaries)
    if prefix != "mdh_row":
        done = scanned[-1].name
        rest = replace(
            rest,
            hom=replace(
                rest.hom,
                combine=tuple(
                    CC if d.name == done else op
                    for d, op in zip(dims, rest.hom.combine, strict=True)
                ),
            ),
        )
    return [first, *scans_split(rest, temporaries)]
