"""The parameters, names and sizes of a kernel: what its function and the call of it have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from emit.c_text import affine_text, c_type
from emit.host_text import (
    Leaf,
    Loops,
    leaves,
)
from emit.request import KernelRequest
from lowering.loops import size_name
from mdh_core.expr import (
    INT64,
    Affine,
    Assign,
    Declare,
    Expr,
    If,
    Load,
    ScalarType,
    Stmt,
    Var,
    While,
    base_of,
    map_stmts,
    rewrite,
)
from mdh_core.ir import Buffer, Dim, HostLoop, MdhProgram, Param, Sequential, Size, Step


def interface(request: KernelRequest, placed: list[tuple[Leaf, Loops]]) -> tuple[list[Param], list[Buffer]]:
    """Parameters and buffers that the function may need; those that it does not mention are left out."""
    params: dict[str, Param] = {}
    own = {b.name for b in request.temporaries}
    for leaf, loops in placed:
        inside = {x.iterator for x in loops}
        params |= {p.name: p for p in leaf.params if p.name not in inside}
    iterators = {x.iterator for _, loops in placed for x in loops}
    sizes = [x.size.span for _, loops in placed for x in loops]
    sizes += [e for b in request.temporaries for e in b.extents if e is not None]
    extra = {n: Param(n, INT64, n) for n in sorted({n for a in sizes for n in a.names} - iterators)}
    params |= {n: p for n, p in (extra | {p.name: p for p in request.params}).items() if n not in params}
    buffers = {b.name: b for leaf, _ in placed for b in leaf.buffers if b.name not in own}
    return list(params.values()), list(buffers.values())


def written_buffers(placed: list[tuple[Leaf, Loops]]) -> set[str]:
    found: set[str] = set()
    for leaf, _ in placed:
        if isinstance(leaf, MdhProgram):
            found |= {s.buffer for s in leaf.out.stores}
        else:
            found |= {x.buffer for x in map(base_of, _targets(leaf.body)) if isinstance(x, Load)}
    return found


def _targets(body: tuple[Stmt, ...]) -> Iterator[Expr]:
    for s in body:
        match s:
            case Assign(target=target):
                yield target
            case If(then=then, other=other):
                yield from _targets((*then, *other))
            case While(body=inner):
                yield from _targets(inner)
            case _:
                pass


def is_integer(p: Param) -> bool:
    return isinstance(p.type, ScalarType) and p.type.is_integer


def scalar_parameter(p: Param) -> str:
    return f"long {p.name}" if is_integer(p) else f"{p.c_type or c_type(p.type)} {p.name}"


def element(b: Buffer) -> str:
    return b.c_type or c_type(b.type)


def qualified(b: Buffer, written: set[str]) -> str:
    t = element(b)
    return t if b.name in written or t.startswith("const ") else f"const {t}"


def pointer(b: Buffer, written: set[str]) -> str:
    return f"{qualified(b, written)} *__restrict {b.name}"


def argument(p: Param) -> str:
    return p.value or p.name


def address(b: Buffer, written: set[str]) -> str:
    return f"({qualified(b, written)} *)({b.base or b.name})"


def fixed_names(request: KernelRequest) -> set[str]:
    """Names that stand in the kernel as they are, or mean something else in the file."""
    names = {request.name} | request.taken | _KEYWORDS | {b.name for b in request.temporaries}
    names |= {p.name for p in request.params}
    for leaf, loops in leaves(request.steps):
        names |= {x.iterator for x in loops}
        names |= {q.name for q in leaf.params} | {b.name for b in leaf.buffers}
        names |= {f.name for f in leaf.functions}
        names |= declared(leaf.body if isinstance(leaf, Sequential) else leaf.hom.scalar.body)
        for b in leaf.buffers:
            names |= set(element(b).split())
    return names


def taken_names(request: KernelRequest, steps: tuple[Step, ...]) -> set[str]:
    """Names that the kernel's own variables avoid; loops take those of the dimensions themselves."""
    names = fixed_names(request)
    for leaf, _ in leaves(steps):
        if isinstance(leaf, MdhProgram):
            names |= {size_name(d.name) for d in leaf.hom.dims}
    return names


def declared(body: tuple[Stmt, ...]) -> set[str]:
    found: set[str] = set()
    for s in body:
        match s:
            case Declare(name=name):
                found.add(name)
            case If(then=then, other=other):
                found |= declared(then) | declared(other)
            case While(body=inner):
                found |= declared(inner)
            case _:
                pass
    return found


_KEYWORDS = frozenset(
    {
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
        "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return",
        "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void",
        "volatile", "while",
    }
)  # fmt: skip


# --------------------------------------------------------------------------- sizes


def depth_of(size: Size, loops: Loops) -> int:
    """How many of the host loops must have begun before a size is known."""
    return max((k for k, x in enumerate(loops, 1) if x.iterator in size.span.names), default=0)


def distinct_sizes(steps: tuple[Step, ...], fixed: set[str]) -> tuple[Step, ...]:
    """Steps whose dimensions of one name have one size and no name of something else.

    Others are renamed (``i`` -> ``i_2``).
    """
    known: dict[str, Size] = {}

    def distinct(p: MdhProgram) -> MdhProgram:
        renaming: dict[str, str] = {}
        own = {d.name for d in p.hom.dims}
        for d in p.hom.dims:
            name, k = d.name, 2
            while (
                {name, size_name(name)} & fixed
                or (name != d.name and name in own)
                or name in renaming.values()
                or known.setdefault(name, d.size) != d.size
            ):
                name, k = f"{d.name}_{k}", k + 1
            if name != d.name:
                renaming[d.name] = name
        return rename_dims(p, renaming) if renaming else p

    def visit(inside: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            distinct(s)
            if isinstance(s, MdhProgram)
            else replace(s, body=visit(s.body))
            if isinstance(s, HostLoop)
            else s
            for s in inside
        )

    return visit(steps)


def rename_dims(program: MdhProgram, renaming: dict[str, str]) -> MdhProgram:
    """The program with dimensions renamed everywhere."""
    affine = {old: Affine.of(new) for old, new in renaming.items()}

    def expr(e: Expr) -> Expr:
        return rewrite(
            e,
            lambda n: (
                replace(n, name=renaming[n.name]) if isinstance(n, Var) and n.name in renaming else None
            ),
        )

    def index(a: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(x.substitute(affine) for x in a)

    scalar = program.hom.scalar
    return replace(
        program,
        inp=replace(
            program.inp,
            accesses=tuple(replace(a, index=index(a.index)) for a in program.inp.accesses),
        ),
        hom=replace(
            program.hom,
            dims=tuple(Dim(renaming.get(d.name, d.name), d.size) for d in program.hom.dims),
            scalar=replace(
                scalar, results=tuple(map(expr, scalar.results)), body=map_stmts(scalar.body, expr)
            ),
            domain=tuple(c.renamed(renaming) for c in program.hom.domain),
        ),
        out=replace(
            program.out,
            initial=tuple(None if e is None else expr(e) for e in program.out.initial),
            stores=tuple(
                replace(
                    s,
                    index=index(s.index),
                    value=expr(s.value),
                    at_last=tuple(renaming.get(d, d) for d in s.at_last),
                )
                for s in program.out.stores
            ),
        ),
    )


def size_lines(placed: Iterable[tuple[Leaf, Loops]], depth: int = 0) -> dict[str, str]:
    """Variables of the sizes that are known inside ``depth`` host loops, with the lines that declare them."""
    return {
        size_name(d.name): f"const long {size_name(d.name)} = {size_text(d.size)};"
        for leaf, loops in placed
        if isinstance(leaf, MdhProgram)
        for d in leaf.hom.dims
        if depth_of(d.size, loops) == depth
    }


def identifiers(lines: Iterable[str]) -> set[str]:
    """What is mentioned; what is not needs no parameter or variable."""
    return {word for line in lines for word in re.findall(r"[A-Za-z_]\w*", line)}


def size_text(size: Size) -> str:
    known = size.constant
    if known is not None:
        return str(known)
    span = affine_text(size.span, {})
    if size.step == 1:
        return span
    atom = affine_text(size.span, {}, atom=True)
    return f"{atom} > 0 ? ({span} + {size.step - 1})/{size.step} : 0"
