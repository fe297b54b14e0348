"""What a nest looks like at a small size: its iterations as points, and what each waits for as arrows.

    LiftedNest  ->  Picture: instances of statements, dependences between them, nearest ones only

The statements of the nest's normal form are put in the order of the source, cell by cell: a read depends on
the last write before it (flow), a write on the reads since then (anti), or else on the write (output).
Scalars are cells, too; those declared inside of the nest are new in every iteration, so they have flow alone.
Nothing is run: the order and the cells are affine functions of the iterators.  Loops are cut after the first
few iterations.  Shown right against the memory that the loops touch (tests/test_report_picture.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lifter.lift import LiftedNest
from lifter.normalise import Axis, AxisLoop, NormalStmt, assigned_scalars, normalise
from lifter.segments import Reference, references
from mdh_core.diagnostics import Refusal
from mdh_core.expr import Assign, Declare, If, ScalarType, Select, Stmt, Var, stmt_exprs, variables
from mdh_core.show import c_style, expression
from mdh_lift import nest_sizes
from mdh_lift.c_value import NotAnInteger

EXTENTS = {1: 10, 2: 6, 3: 4, 4: 3}  # iterations of each loop that are drawn, by the number of loops
_DEEPER = 2
_ENOUGH = 200  # instances: with more, loops are cut earlier
_MOST_INSTANCES = 1500
KINDS = ("flow", "anti", "output")

Place = tuple[int, ...]  # values of the axes of a statement, outermost first


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement without loops: its text and its loops' names in the source."""

    text: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dependence:
    """Instance ``target`` of statement ``to`` waits for instance ``source`` of statement ``of``.

    kind      flow, anti or output
    combined  the combine operator that absorbs it (``pw(+)``): iterations may be combined in any order;
              empty where the order counts
    """

    of: int
    source: Place
    to: int
    target: Place
    kind: str
    buffer: str
    combined: str = ""

    @property
    def distance(self) -> Place:
        """Over the loops around both."""
        return tuple(b - a for a, b in zip(self.source, self.target, strict=False))


@dataclass(frozen=True, slots=True)
class Picture:
    """``instances``: (statement, place); ``cut``: loops have more iterations; ``notes``: what is left out."""

    statements: tuple[Statement, ...]
    instances: tuple[tuple[int, Place], ...]
    dependences: tuple[Dependence, ...]
    cut: bool = False
    notes: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        return max((len(s.axes) for s in self.statements), default=0)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the loops of the deepest statement."""
        return max((s.axes for s in self.statements), key=len, default=())

    def text(self) -> str:
        """The picture in words: loops, number of points, distances of dependences."""
        several = len(self.statements) != 1
        statements = f"{len(self.statements)} statements" if several else "one statement"
        loops = ", ".join(self.axes) or "none"
        out = [f"Loops: {loops}. {len(self.instances)} instances of {statements} are drawn."]
        groups: dict[tuple[int, int, str, str, str], set[Place]] = {}
        for d in self.dependences:
            groups.setdefault((d.of, d.to, d.kind, d.buffer, d.combined), set()).add(d.distance)
        for (of, to, kind, buffer, combined), found in groups.items():
            ordered = sorted(found)
            shown = ", ".join(f"({', '.join(map(str, x))})" for x in ordered[:4])
            more = f" and {len(ordered) - 4} more" if len(ordered) > 4 else ""
            absorbed = f", combined by {combined}" if combined else ""
            out.append(f"S{of + 1} to S{to + 1}: {kind} of {buffer}, distance {shown}{more}{absorbed}.")
        if not self.dependences:
            out.append("No iteration waits for another.")
        return " ".join([*out, *self.notes])


def picture(lifted: LiftedNest, source: bytes = b"") -> Picture | None:
    """The picture of a nest; None where it has no normal form or no loops.

    ``source``: the text that the nest's spans count in, for statements as they are written there.
    """
    try:
        normal = normalise(lifted.nest)
    except Refusal:
        return None
    scalars = frozenset(assigned_scalars(lifted.nest.body))
    outer = frozenset(x.name for x in lifted.nest.scalars)
    collected = _Leaves(source, scalars)
    collected.visit(normal.body, (), (), False)
    leaves = collected.found
    if not leaves or not any(leaf.axes for leaf in leaves):
        return None
    depth = max(len(leaf.axes) for leaf in leaves)
    extent = EXTENTS.get(depth, _DEEPER)
    params, instances = _drawn(lifted, leaves, extent)
    while params is not None and len(instances) > _ENOUGH and extent > _DEEPER:
        extent -= 1
        params, instances = _drawn(lifted, leaves, extent)
    if params is None or not instances or len(instances) > _MOST_INSTANCES:
        return None
    notes = []
    if any(r.index is None for leaf in leaves for r in leaf.references):
        notes.append("Accesses at positions that depend on data are not drawn.")
    if any(leaf.conditional for leaf in leaves):
        notes.append("Accesses under a condition are drawn as if it held.")
    operators = _operators(lifted)
    found = tuple(_dependences(instances, params, operators, scalars - outer))
    cut = any(
        a.size.evaluate(params) > extent
        for leaf in leaves
        for a in leaf.axes
        if a.size.span.names <= params.keys()
    )
    return Picture(
        tuple(Statement(leaf.text, tuple(a.source_name for a in leaf.axes)) for leaf in leaves),
        tuple((leaf.number, place) for _, leaf, place in sorted(instances, key=lambda x: x[0])),
        found,
        cut,
        tuple(notes),
    )


def _drawn(
    lifted: LiftedNest, leaves: Sequence[_Leaf], extent: int
) -> tuple[dict[str, int] | None, list[Instance]]:
    """Values of the parameters, and the first iterations of each loop."""
    params = _parameters(lifted, extent + 2)
    if params is None:
        return None, []
    return params, [x for leaf in leaves for x in _instances(leaf, params, extent)]


def _parameters(lifted: LiftedNest, value: int) -> dict[str, int] | None:
    """Values of the integer parameters where every size is small."""
    names = {name for name, p in nest_sizes.variables_of(lifted).items() if _is_integer(p.type)}
    try:
        return nest_sizes.parameter_values(lifted, dict.fromkeys(names, value))
    except (KeyError, ValueError, ArithmeticError, NotAnInteger):
        return None


def _is_integer(t: object) -> bool:
    return isinstance(t, ScalarType) and t.is_integer


# --------------------------------------------------------------------------- statements and their instances


# The way to a statement from the outermost list: ordinals in lists and of branches, None at each loop.
Position = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class _Leaf:
    number: int
    text: str
    axes: tuple[Axis, ...]
    position: Position
    references: tuple[Reference, ...]
    reads: frozenset[str]  # scalars
    writes: frozenset[str]
    conditional: bool


@dataclass(slots=True)
class _Leaves:
    """Collects statements without loops, and conditions around loops, in the order of the text."""

    source: bytes
    scalars: frozenset[str]
    found: list[_Leaf] = field(default_factory=list)

    def visit(
        self, body: Sequence[NormalStmt | Stmt], axes: tuple[Axis, ...], position: Position, conditional: bool
    ) -> None:
        for k, s in enumerate(body):
            at = (*position, k)
            if isinstance(s, AxisLoop):
                self.visit(s.body, (*axes, s.axis), (*at, None), conditional)
            elif isinstance(s, If) and _holds_loop(s):
                test = replace(s, then=(), other=())
                self.add(test, axes, (*at, 0), conditional)
                self.visit(s.then, axes, (*at, 1), True)
                self.visit(s.other, axes, (*at, 2), True)
            elif not (isinstance(s, Declare) and s.value is None):
                self.add(s, axes, at, conditional or isinstance(s, If))

    def add(
        self, s: NormalStmt | Stmt, axes: tuple[Axis, ...], position: Position, conditional: bool
    ) -> None:
        """A leaf, if it touches memory or assigns a scalar."""
        found = tuple(dict.fromkeys(references((s,), axes)))
        written = assigned_scalars((s,)) | ({s.name} if isinstance(s, Declare) else set())
        read = _read_scalars(s) & self.scalars
        if found or written or read:
            number, text = len(self.found), _text(s, self.source)
            leaf = _Leaf(number, text, axes, position, found, read, frozenset(written), conditional)
            self.found.append(leaf)


def _holds_loop(s: If) -> bool:
    inner: tuple[NormalStmt | Stmt, ...] = (*s.then, *s.other)
    return any(isinstance(t, AxisLoop) or (isinstance(t, If) and _holds_loop(t)) for t in inner)


def _read_scalars(s: NormalStmt | Stmt) -> frozenset[str]:
    assert not isinstance(s, AxisLoop)
    if isinstance(s, Assign) and isinstance(s.target, Var):
        return variables(s.value)
    return frozenset().union(*(variables(e) for e in stmt_exprs((s,))))


def _text(s: NormalStmt | Stmt, source: bytes) -> str:
    assert not isinstance(s, AxisLoop)
    style = c_style("x{}".format, "r{}".format)
    written = source[s.span.start : s.span.end].decode("utf-8", "replace") if s.span else ""
    match s:
        case Assign() if written and not isinstance(s.value, Select):
            text = " ".join(written.split()).rstrip(";")
        case Assign(target=target, value=value):
            text = f"{expression(target, style)} = {expression(value, style)}"
        case Declare(name=name, value=value) if value is not None:
            text = f"{name} = {expression(value, style)}"
        case If(cond=cond):
            text = f"if ({expression(cond, style)}) …"
        case _:
            text = type(s).__name__.lower()
    return text if len(text) <= 90 else text[:89] + "…"


Instance = tuple[Place, _Leaf, Place]  # time, statement, values of its axes


def _instances(leaf: _Leaf, params: Mapping[str, int], extent: int) -> Iterator[Instance]:
    """The first iterations of each loop around a statement."""

    def visit(k: int, env: dict[str, int], place: Place) -> Iterator[Instance]:
        if k == len(leaf.axes):
            values = iter(place)
            yield tuple(next(values) if x is None else x for x in leaf.position), leaf, place
            return
        axis = leaf.axes[k]
        for v in range(extent):
            inner = {**env, axis.name: v}
            if all(c.holds(inner) for c in axis.domain if c.names <= inner.keys()):
                yield from visit(k + 1, inner, (*place, v))

    yield from visit(0, dict(params), ())


# --------------------------------------------------------------------------- dependences


def _dependences(
    instances: Sequence[Instance],
    params: Mapping[str, int],
    operators: Mapping[str, str],
    local: frozenset[str],
) -> Iterator[Dependence]:
    """``local``: scalars that are declared in the nest."""
    last_write: dict[tuple[str, Place], Instance] = {}
    readers: dict[tuple[str, Place], list[Instance]] = {}
    seen: set[tuple[object, ...]] = set()

    def arrow(a: Instance, b: Instance, kind: str, buffer: str) -> Iterator[Dependence]:
        (_, of, source), (_, to, target) = a, b
        key = (of.number, source, to.number, target)
        if key in seen or (of is to and source == target):
            return
        seen.add(key)
        combined = _combined(of, source, to, target, operators)
        yield Dependence(of.number, source, to.number, target, kind, buffer, combined)

    for instance in sorted(instances, key=lambda x: x[0]):
        _, leaf, place = instance
        env = {**params, **{a.name: v for a, v in zip(leaf.axes, place, strict=True)}}
        cells = [
            (r.written, (r.buffer, tuple(i.evaluate(env) for i in r.index)))
            for r in leaf.references
            if r.index is not None and all(i.names <= env.keys() for i in r.index)
        ]
        cells += [(False, (name, ())) for name in sorted(leaf.reads)]
        cells += [(True, (name, ())) for name in sorted(leaf.writes)]
        for written, cell in cells:
            if not written and cell in last_write:
                yield from arrow(last_write[cell], instance, "flow", cell[0])
        for written, cell in cells:
            if written:
                before = [x for x in readers.pop(cell, []) if x is not instance]
                for x in before if cell[0] not in local else ():
                    yield from arrow(x, instance, "anti", cell[0])
                if cell in last_write and not before and cell[0] not in local:
                    yield from arrow(last_write[cell], instance, "output", cell[0])
                last_write[cell] = instance
        for written, cell in cells:
            if not written:
                readers.setdefault(cell, []).append(instance)


def _operators(lifted: LiftedNest) -> dict[str, str]:
    """Per loop the operator that combines its iterations, where all programs agree that it does."""
    found: dict[str, set[str]] = {}
    for p in lifted.programs:
        for d, op in zip(p.hom.dims, p.hom.combine, strict=True):
            found.setdefault(d.name, set()).add("" if op.kind == "cc" else str(op))
    return {name: ops.pop() for name, ops in found.items() if len(ops) == 1 and "" not in ops}


def _combined(of: _Leaf, source: Place, to: _Leaf, target: Place, operators: Mapping[str, str]) -> str:
    """The operator along all axes in which an instance differs from the one before it."""
    if of is not to:
        return ""
    moved = [a.name for a, x, y in zip(of.axes, source, target, strict=True) if x != y]
    used = {operators.get(name, "") for name in moved}
    return used.pop() if len(used) == 1 else ""
