"""A nest as text at every stage: the loops as read, the MDH expression, isl's notation, the lowered loops.

nest    for i in [0, n): y[i] = 2 * x[i];
isl     domain [n] -> { [i] : 0 <= i < n }
        reads  x[i]: [n] -> { [i] -> x[i] }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, NestStmt
from lifter.trees import has_loop
from lowering.lower import HistogramNest, Nest, Stage, lower
from mdh_core.expr import Affine, If
from mdh_core.ir import MdhProgram
from mdh_core.show import c_like, c_style, show, statements
from mdh_lift.kernels import outline, plan

_C = c_style("x{}".format, "r{}".format)


def shown(lifted: LiftedNest, form: str = "text", stage: str = "mdh") -> str:
    """``form`` is text, dsl, latex or isl (which counts for the stage mdh); ``stage`` is nest, mdh or low."""
    if stage == "nest":
        return "\n".join(_loops(lifted.nest.body)) + "\n"
    if stage == "low":
        return "\n".join(_low(lifted))
    of = isl if form == "isl" else lambda p: show(p, form)
    if lifted.program == lifted.programs:  # neither host loops nor sequential parts
        return "\n".join(map(of, lifted.programs))
    return "\n".join(outline(lifted.program, of)) + "\n"


def _loops(body: Sequence[NestStmt], depth: int = 0) -> Iterator[str]:
    indent = "  " * depth
    for s in body:
        if isinstance(s, Loop):
            step = "" if s.step == 1 else f" step {s.step}"
            yield f"{indent}for {s.iterator} in [{c_like(s.lower)}, {c_like(s.upper)}){step}"
            yield from _loops(s.body, depth + 1)
        elif isinstance(s, If) and has_loop(s):
            yield f"{indent}if ({c_like(s.cond)}) {{"
            yield from _loops(s.then, depth + 1)  # type: ignore[arg-type] # loops in it
            if s.other:
                yield indent + "} else {"
                yield from _loops(s.other, depth + 1)  # type: ignore[arg-type]
            yield indent + "}"
        else:
            yield from (indent + line for line in statements((s,), _C))


# --------------------------------------------------------------------------- isl


def isl(program: MdhProgram) -> str:
    """Iteration domain, reads and writes in isl's notation."""
    dims = [d.name for d in program.hom.dims]
    names = {n for d in program.hom.dims for n in d.size.span.names}
    indices = [a.index for a in program.inp.accesses] + [s.index for s in program.out.stores]
    names |= {n for index in indices for a in index for n in a.names} - set(dims)
    params = f"[{', '.join(sorted(names))}] -> " if names else ""
    point = f"[{', '.join(dims)}]"
    bounds = [
        f"0 <= {d.name} < {d.size.span}"
        if d.size.step == 1
        else f"0 <= {d.size.step}{d.name} < {d.size.span}"
        for d in program.hom.dims
    ]
    lines = [f"domain  {params}{{ {point} : {' and '.join(bounds)} }}"]
    lines += [f"reads   {params}{{ {point} -> {a.buffer}{_index(a.index)} }}" for a in program.inp.accesses]
    lines += [f"writes  {params}{{ {point} -> {s.buffer}{_index(s.index)} }}" for s in program.out.stores]
    return "\n".join(lines) + "\n"


def _index(index: Sequence[Affine]) -> str:
    return f"[{', '.join(map(str, index))}]"


# --------------------------------------------------------------------------- low level


def _low(lifted: LiftedNest) -> Iterator[str]:
    """The loops that the cost model's first choice gives, outermost first."""
    whole = plan(lifted)
    chosen, default = whole.formed(whole.default)
    configurations = iter(chosen.configurations(default))
    yield from outline(
        chosen.lifted.program,
        lambda p: "\n".join(_stages(lower(p, next(configurations), chosen.machine).stages)),
    )
    yield ""


def _stages(stages: Sequence[Stage]) -> Iterator[str]:
    for number, stage in enumerate(stages):
        yield f"stage {number}: {stage.program.name}"
        if isinstance(stage, HistogramNest):
            cells = ", ".join(stage.form.cells)
            how = f"{stage.copies} private copies" if stage.copies else "one array"
            shared = f", threads share {stage.dims[0]}" if stage.shared else ""
            yield f"  loops over {', '.join(stage.dims)}{shared}; {cells} computed at each point, {how}"
            continue
        if not isinstance(stage, Nest):
            yield f"  scan over {stage.dim}, blocks of {stage.block}, {stage.rows} rows"
            continue
        for k, loop in enumerate(stage.loops):
            count = "to the end" if loop.count is None else f"{loop.count} times"
            packs = "".join(f", pack {p.buffer}" for p in stage.packs if p.at == k)
            loops = f"{loop.dim}_{loop.layer}: steps of {loop.size}, {count}, {loop.role}"
            yield f"  {'  ' * k}{loops}{packs}"
        if stage.keyed is not None:
            yield "  or a table of sums by value, where it pays"
        yield f"  unfinished results: {stage.results}"
