"""The C file of a kernel: records and functions of the nest, the kernel, an entry that takes pointers.

int mdh_entry(void *const *a)         a[0], a[1], ...: addresses of parameters, arrays, outer scalars
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from emit.c_text import Printer, c_type
from emit.request import Kernel
from emit.targets import OPENMP
from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.trees import tree_exprs
from lowering.machine import has_huge_pages
from mdh_core.expr import (
    Assign,
    Expr,
    If,
    Load,
    RecordType,
    Stmt,
    Type,
    Var,
    While,
    base_of,
    children,
    stmt_exprs,
)
from mdh_core.ir import HostLoop, MdhProgram, Step
from mdh_core.rounding import rounds_products
from mdh_lift.kernels import Plan
from tuning.ceilings import known_machine

ENTRY = "mdh_entry"


@dataclass(frozen=True)
class Slot:
    """One pointer of the entry's argument.

    ``of``: the array and its dimension of which an "extent" is the length.
    """

    role: str  # "param" | "buffer" | "scalar" | "extent"
    name: str
    type: Type
    of: tuple[str, int] = ("", 0)


@dataclass(frozen=True)
class Program:
    """``text``: the C file with the entry; ``device``: that of the GPU kernels that it calls, or empty."""

    text: str
    slots: tuple[Slot, ...]
    exact: bool  # no reduction is computed in another order
    target: str = OPENMP
    device: str = ""
    rounds: bool = False  # products and sums must not be contracted


def prepared(nest: LoopNest, apart: bool = False) -> LoopNest:
    """The nest with plain C names for the addresses and values that its kernel is called with.

    ``apart``: the arrays share no memory.
    """
    return replace(
        nest,
        params=tuple(replace(p, value=p.name, c_type="") for p in nest.params),
        buffers=tuple(replace(b, base=b.name, c_type="", restrict=b.restrict or apart) for b in nest.buffers),
        scalars=tuple(replace(s, c_type="") for s in nest.scalars),
    )


def program(found: LiftedNest, params: dict[str, int]) -> Program:
    """The file for a configuration that suits these values of the integer parameters."""
    sizes = tuple(p.sizes(known_sizes(found, params)) for p in found.programs)
    machine = replace(known_machine(), huge_pages=has_huge_pages(asked=True))  # NumPy asks
    plan = Plan(found, machine, params, sizes)
    return around(found, plan.kernel(plan.default, described=False))


def around(found: LiftedNest, kernel: Kernel, entry: str = ENTRY) -> Program:
    """The file that a kernel stands in; ``entry``: the name of the function that takes pointers."""
    nest, slots = found.nest, _slots(found.nest)
    functions = [row for _, rows in functions_of(nest) for row in (*rows, "")]
    lines = [*_records(nest), *functions, kernel.text, *_entry(entry, kernel.call, slots)]
    return Program("\n".join(lines) + "\n", slots, _exact(found))


def beside(
    found: LiftedNest, header: str, call: str, extents: Sequence[Slot], entry: str = ENTRY
) -> Program:
    """The C file that calls a nest's function for a GPU; ``extents``: what that is told, too."""
    slots = (*_slots(found.nest), *extents)
    lines = [*_records(found.nest), header.rstrip(), "", *_entry(entry, call, slots)]
    rounds = any(map(rounds_products, found.programs))
    return Program("\n".join(lines) + "\n", slots, _exact(found), rounds=rounds)


def _slots(nest: LoopNest) -> tuple[Slot, ...]:
    return (
        *(Slot("param", p.name, p.type) for p in nest.params),
        *(Slot("buffer", b.name, b.type) for b in nest.buffers),
        *(Slot("scalar", s.name, s.type) for s in nest.scalars),
    )


def _exact(found: LiftedNest) -> bool:
    return all(op.function is None or op.function.exact for p in found.programs for op in p.hom.combine)


def size_names(steps: Sequence[Step]) -> set[str]:
    """Names in the sizes of dimensions and host loops."""
    out: set[str] = set()
    for s in steps:
        if isinstance(s, MdhProgram):
            out |= {n for d in s.hom.dims for n in d.size.span.names}
        elif isinstance(s, HostLoop):
            out |= s.size.span.names | size_names(s.body)
    return out


def known_sizes(found: LiftedNest, params: dict[str, int]) -> dict[str, int]:
    """Values for the iterators of host loops, too: the middle of their range."""
    values = dict(params)

    def visit(steps: Sequence[Step]) -> None:
        for s in steps:
            if isinstance(s, HostLoop):
                values[s.iterator] = max(0, s.size.evaluate(values) // 2)
                visit(s.body)

    visit(found.program)
    return values


def _entry(name: str, call: str, slots: Sequence[Slot]) -> Iterator[str]:
    yield f"int {name}(void *const *mdh_a);"
    yield f"int {name}(void *const *mdh_a)"
    yield "{"
    for k, s in enumerate(slots):
        t = c_type(s.type)
        if s.role == "buffer":
            yield f"  {t} *const {s.name} = ({t} *)mdh_a[{k}];"
        else:
            yield f"  {t} {s.name} = *(const {t} *)mdh_a[{k}];"
    for s in slots:
        yield f"  (void){s.name};"
    yield f"  const int mdh_done = {call};"
    for k, s in enumerate(slots):
        if s.role == "scalar":
            yield f"  if (mdh_done) *({c_type(s.type)} *)mdh_a[{k}] = {s.name};"
    yield "  return mdh_done;"
    yield "}"


# --------------------------------------------------------------------------- definitions


def _records(nest: LoopNest) -> Iterator[str]:
    return (text for _, text in records_of(nest))


def records_of(nest: LoopNest) -> Iterator[tuple[str, str]]:
    """Structure types that the nest and its functions use: name and declaration."""
    for t in dict.fromkeys(_record_types(nest)):
        fields = " ".join(f"{c_type(f)} {name};" for name, f in t.fields)
        if t.name.startswith("struct "):
            yield t.name, f"{t.name} {{ {fields} }};"
        else:
            yield t.name, f"typedef struct {{ {fields} }} {t.name};"


def _record_types(nest: LoopNest) -> Iterator[RecordType]:
    named: tuple[Type, ...] = (
        *(b.type for b in nest.buffers), *(s.type for s in nest.scalars), *(p.type for p in nest.params)
    )  # fmt: skip
    yield from (t for t in named if isinstance(t, RecordType))
    for f in nest.functions:
        for t in (f.type, *(t for _, t in f.params)):
            if isinstance(t, RecordType):
                yield t
        yield from _of_exprs(stmt_exprs(f.body))
    yield from _of_exprs(tree_exprs(nest.body))


def written(body: Sequence[NestStmt | Stmt]) -> set[str]:
    """Buffers that statements store to."""
    out: set[str] = set()
    for s in body:
        match s:
            case Assign(target=target):
                base = base_of(target)
                if isinstance(base, Load):
                    out.add(base.buffer)
            case If(then=then, other=other):
                out |= written((*then, *other))
            case While(body=inner):
                out |= written(inner)
            case Loop(body=nested):
                out |= written(nested)
    return out


def _of_exprs(exprs: Iterator[Expr]) -> Iterator[RecordType]:
    for e in exprs:
        if isinstance(e.type, RecordType):
            yield e.type
        yield from _of_exprs(iter(children(e)))


def functions_of(nest: LoopNest) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The user's functions that the nest calls: name and lines."""
    printer = Printer(_leaf, functions=tuple(nest.functions))
    for f in nest.functions:
        params = ", ".join(f"{c_type(t)} {name}" for name, t in f.params)
        t, own = c_type(f.type), f"{f.name}_value" if f.out_param else f.name
        rows = [f"static {t} {own}({params})", "{"]
        rows += ["  " + line for line in printer.statements(f.body)]
        rows.append("}")
        if f.out_param:
            rows.append(f"static void {f.name}({t} *res, const {t} *lhs, const {t} *rhs)")
            rows.append(f"{{ *res = {own}(*lhs, *rhs); }}")
        yield f.name, tuple(rows)


def _leaf(e: Expr) -> str:
    if isinstance(e, Var):
        return e.name
    raise AssertionError(e)
