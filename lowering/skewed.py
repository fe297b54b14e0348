"""Arrays whose rows are wavefronts, while a host loop runs (array layout, unimodular).

    before   for w: md_hom[i]: u[i, w - 2*i] = f(u[i - 1, w - 2*i], ...)
    after    skew[x1 + 2*x0, x0] = u[x0, x1]                  for the cells that the loop reads
             for w: md_hom[i]: skew[w, i] = f(skew[w - 2, i - 1], ...)
             u[x0, x1] = skew[x1 + 2*x0, x0]                  for the cells that the loop writes

Points of a wavefront lie on a diagonal of the array: each in a line of its own, and no vector is loaded at
once.  In the other layout one concatenated dimension has stride 1 in all accesses of the array.

    skewed   host loop of programs, names -> copies before, the loop, copies behind, the arrays; None

Layout.  Let an index change by v, an integer vector with v[k] = 1 or -1, where the dimension steps by one
(in every access that the dimension moves).  Then y[last] = v[k]*x[k], and y[m] = x[m] - v[m]*v[k]*x[k] for
m != k, is unimodular, and y changes by (0, ..., 0, 1).  Offsets make the least value of each coordinate 0.

Cells.  What is copied back was written by the loop, cell by cell: other cells are not ours to write.  What is
copied in was touched by the loop: other cells need not exist.  So the cells that each access touches are
computed exactly, as unions of polyhedra over the parameters (projections of the points; conditions on the
way to an access among them), or nothing is done.  Polyhedra are joined where what their hull adds is touched
as well.

Two indices are two cells as long as each lies within the extents that the array was declared with.  Where the
sizes do not tell, the kernel asks (``MdhProgram.assumptions``).

Shown right by tests/test_skewed.py: the same meaning as before on random wavefronts, emitted code under
sanitizers with nothing around the touched cells, and by the certificate, of each kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from lowering.programs import Rows, assumes, fresh, points
from mdh_core.combine import CC
from mdh_core.expr import (
    Affine,
    Binary,
    Cast,
    Constraint,
    Expr,
    If,
    Load,
    Operand,
    Result,
    ScalarType,
    Select,
    Stmt,
    Unary,
    While,
    affine_expr,
    as_affine,
    children,
    rewrite,
    stmt_exprs,
)
from mdh_core.ir import (
    Access,
    Buffer,
    Dim,
    HostLoop,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    ScalarFunction,
    Size,
    Store,
    with_expressions,
)
from mdh_core.polytope import certainly_empty, implied, names_of, project, without_implied

_COPIES = 6  # of one array, there and back
_PIECES = 400  # that are looked at to see whether some polyhedra cover another one


@dataclass(frozen=True, slots=True)
class Skewed:
    """``arrays``: temporaries that take the place of others in the loop."""

    before: tuple[MdhProgram, ...]
    loop: HostLoop
    behind: tuple[MdhProgram, ...]
    arrays: tuple[Buffer, ...]

    @property
    def copies(self) -> tuple[MdhProgram, ...]:
        return self.before + self.behind


def skewed(loop: HostLoop, taken: Collection[str]) -> Skewed | None:
    """The loop with as many arrays in another layout as can be; None where that is none.

    ``taken``: names that the new arrays must not have.
    """
    programs = [s for s in loop.body if isinstance(s, MdhProgram)]
    if len(programs) < len(loop.body) or loop.size.step != 1 or assumes(programs, {loop.iterator}):
        return None
    if any(p.hom.dims_of("ps") or any(s.at_last for s in p.out.stores) for p in programs):
        return None
    touched = [_touches(p) for p in programs]
    written = {s.buffer for p in programs for s in p.out.stores}
    chosen: dict[str, _Array] = {}
    for name in sorted(written):
        direction = _direction(programs, touched, name)
        cells = None if direction is None else _cells(programs, touched, name, loop)
        if direction is not None and cells is not None:
            array = _laid_out(programs, name, direction, cells, fresh(f"mdh_skew_{name}", taken))
            if array is not None:
                chosen[name] = array
                taken = {*taken, array.copy.name}
    if not chosen:
        return None
    return Skewed(
        tuple(p for a in chosen.values() for p in a.copies(there=True)),
        replace(loop, body=tuple(_with(p, chosen) for p in programs)),
        tuple(p for a in chosen.values() for p in a.copies(there=False)),
        tuple(a.copy for a in chosen.values()),
    )


# --------------------------------------------------------------------------- what a program touches


@dataclass(frozen=True, slots=True)
class _Touch:
    """An access: where, under which conditions; ``certain``: these are all there are.

    index   None where it is computed from data;  position   at positions alone, whatever is reduced
    """

    buffer: str
    index: tuple[Affine, ...] | None
    facts: tuple[Affine, ...] = ()
    certain: bool = True
    position: bool = False
    written: bool = False


def _touches(p: MdhProgram) -> list[_Touch]:
    own = {x.name for x in p.params} | {d.name for d in p.hom.dims}
    scalar, found = p.hom.scalar, list[_Touch]()

    def visit(e: Expr, path: _Path, position: bool) -> None:
        for n, way in _on_paths(e, path, own):
            match n:
                case Operand(access=k) if p.inp.accesses[k].conditional:
                    a = p.inp.accesses[k]
                    found.append(_Touch(a.buffer, a.index, way.facts, way.certain))
                case Load(buffer=buffer, index=index):
                    at = [as_affine(i) for i in index]
                    known = tuple(a for a in at if a is not None and a.names <= own)
                    where = known if len(known) == len(at) else None
                    found.append(_Touch(buffer, where, way.facts, way.certain, position))

    found += [_Touch(a.buffer, a.index) for a in p.inp.accesses if not a.conditional]
    for e, path in (*_with_paths(scalar.body, _Path(), own), *((e, _Path()) for e in scalar.results)):
        visit(e, path, position=False)
    for e in (*(e for e in p.out.initial if e is not None), *(s.value for s in p.out.stores)):
        visit(e, _Path(), position=True)
    found += [_Touch(s.buffer, s.index, position=True, written=True) for s in p.out.stores]
    return found


@dataclass(frozen=True, slots=True)
class _Path:
    """What holds where an expression is evaluated; ``certain``: there it is evaluated."""

    facts: tuple[Affine, ...] = ()
    certain: bool = True

    def also(self, more: _Path) -> _Path:
        return _Path((*self.facts, *more.facts), self.certain and more.certain)


_SOMETIMES = _Path(certain=False)


def _on_paths(e: Expr, path: _Path, names: set[str]) -> Iterator[tuple[Expr, _Path]]:
    """All nodes; ``names``: those that mean the same everywhere."""
    yield e, path
    match e:
        case Select(cond=cond, then=then, other=other):
            yield from _on_paths(cond, path, names)
            yield from _on_paths(then, path.also(_facts(cond, True, names)), names)
            yield from _on_paths(other, path.also(_facts(cond, False, names)), names)
        case Binary(op="&&" | "||" as op, a=a, b=b):
            yield from _on_paths(a, path, names)
            yield from _on_paths(b, path.also(_facts(a, op == "&&", names)), names)
        case _:
            for child in children(e):
                yield from _on_paths(child, path, names)


def _with_paths(body: Sequence[Stmt], path: _Path, names: set[str]) -> Iterator[tuple[Expr, _Path]]:
    """The expressions of statements; what stands in a loop is not certain."""
    for s in body:
        match s:
            case If(cond=cond, then=then, other=other):
                yield cond, path
                yield from _with_paths(then, path.also(_facts(cond, True, names)), names)
                yield from _with_paths(other, path.also(_facts(cond, False, names)), names)
            case _:
                way = path.also(_SOMETIMES) if isinstance(s, While) else path
                yield from ((e, way) for e in stmt_exprs((s,)))


def _facts(e: Expr, value: bool, names: set[str]) -> _Path:
    """What holds where the condition has this value; certain: it has this value wherever that holds."""
    match e:
        case Unary(op="!", a=a):
            return _facts(a, not value, names)
        case Cast(a=Binary() | Unary() as a) if as_affine(e) is None:
            return _facts(a, value, names)
        case Binary(op="&&" | "||" as op, a=a, b=b) if value == (op == "&&"):
            return _facts(a, value, names).also(_facts(b, value, names))
        case Binary(op="<" | "<=" | ">" | ">=" | "==" | "!=" as op, a=a, b=b):
            x, y = as_affine(a), as_affine(b)
            if x is None or y is None or not (x - y).names <= names or not (_is_plain(a) and _is_plain(b)):
                return _SOMETIMES
            if op in ("==", "!="):
                return _Path((x - y, y - x)) if value == (op == "==") else _SOMETIMES
            more = y - x if op in ("<", "<=") else x - y
            least = 1 if op in ("<", ">") else 0
            return _Path((more - least if value else -more + least - 1,))
        case _:
            return _SOMETIMES


def _is_plain(e: Expr) -> bool:
    """Whether nothing is lost or wraps around on the way: signed arithmetic, not narrower than ``int``."""
    t = getattr(e, "type", None)
    return isinstance(t, ScalarType) and t.kind == "int" and t.bits >= 32 and all(map(_is_plain, children(e)))


# --------------------------------------------------------------------------- directions


def _direction(
    programs: Sequence[MdhProgram], touched: Sequence[Sequence[_Touch]], name: str
) -> tuple[int, ...] | None:
    """How the index of an array changes along one dimension of each program; None where that is no diagonal.

    (What walks along a column may reduce along a row, with vectors there.)
    """
    options: list[list[tuple[int, ...] | None]] = []
    for p, touches in zip(programs, touched, strict=True):
        own = [t.index for t in touches if t.buffer == name]
        if None in own:
            return None
        index = [x for x in own if x is not None]
        dims = [d.name for d in p.hom.dims_of("cc") if d.size.step == 1]
        options.append([_common(index, d) for d in dims] if index and dims else [()])
    found = [{v for v in combination if v} for combination in product(*options) if None not in combination]
    single = [v for moving in found if len(moving) == 1 for v in moving]
    if any(not any(v[:-1]) and abs(v[-1]) == 1 for v in single):
        return None
    return next((v for v in single if len([n for n in v if n]) > 1 and 1 in map(abs, v)), None)


def _common(index: Sequence[tuple[Affine, ...]], dim: str) -> tuple[int, ...] | None:
    """The one change of the indices that the dimension moves; (): it moves none; None: there are several."""
    found = {tuple(a.coefficient(dim) for a in x) for x in index}
    found = {v for v in found if any(v)}
    return None if len(found) > 1 else next(iter(found), ())


# --------------------------------------------------------------------------- cells


@dataclass(frozen=True, slots=True)
class _Cells:
    """Polyhedra over the array's coordinates (``_x``) and parameters; ``read``: of those to copy in."""

    read: tuple[Rows, ...]
    written: tuple[Rows, ...]


def _x(k: int) -> str:
    return f"cell:{k}"


def _cells(
    programs: Sequence[MdhProgram], touched: Sequence[Sequence[_Touch]], name: str, loop: HostLoop
) -> _Cells | None:
    read, written, others = list[Rows](), list[Rows](), list[Rows]()
    for p, touches in zip(programs, touched, strict=True):
        for t in dict.fromkeys(t for t in touches if t.buffer == name):
            rows, exact = _cells_of(p, t, loop)
            if rows is None:
                continue
            if t.written and not exact:
                return None
            (written if t.written else read if exact and t.certain else others).append(rows)
    every = [*read, *written]
    if not all(_covered(rows, every) for rows in others):
        return None
    if not all(_covered(rows, read) for rows in others):
        read = every
    found = _Cells(tuple(_as_few(read, every)), tuple(_as_few(written, written)))
    return found if len(found.read) + len(found.written) <= _COPIES else None


def _cells_of(p: MdhProgram, t: _Touch, loop: HostLoop) -> tuple[Rows | None, bool]:
    """The cells of an access; whether it touches all of these.  None: it touches none."""
    assert t.index is not None
    now = Affine.of(loop.iterator)
    dims = {d.name for d in (p.hom.dims_of("cc") if t.position else p.hom.dims)}
    rows = [now, loop.size.span - 1 - now, *points(p, {}, dims), *t.facts]
    if certainly_empty(rows):
        return None, True
    rows = without_implied(rows)
    for k, a in enumerate(t.index):
        rows += [Affine.of(_x(k)) - a, a - Affine.of(_x(k))]
    left, exact = project(rows, {loop.iterator, *dims})
    return without_implied(left), exact


def _covered(rows: Rows, by: Sequence[Rows]) -> bool:
    """Whether each of the points is certainly one of another polyhedron."""
    budget = [_PIECES]

    def inside(rest: Rows, k: int) -> bool:
        budget[0] -= 1
        if certainly_empty(rest):
            return True
        if k == len(by) or budget[0] < 0:
            return False
        kept = list(rest)
        for row in by[k]:
            if not inside([*kept, -row - 1], k + 1):
                return False
            kept.append(row)
        return True

    return inside(rows, 0)


def _as_few(pieces: Sequence[Rows], within: Sequence[Rows]) -> list[Rows]:
    """Polyhedra that cover the same points and at most some of ``within``, which cover them as well."""
    left = list(pieces)
    found = True
    while found:
        found = False
        for k in reversed(range(len(left))):
            if _covered(left[k], left[:k] + left[k + 1 :]):
                del left[k]
        for a, b in combinations(range(len(left)), 2):
            hull = _hull(left[a], left[b])
            if _covered(hull, within):
                left = [x for k, x in enumerate(left) if k not in (a, b)] + [hull]
                found = True
                break
    return left


def _hull(a: Rows, b: Rows) -> Rows:
    """Bounds of one of two polyhedra that hold for both; those of single coordinates and parameters, too."""
    own = [*a, *b]
    for rows in (a, b):
        cells = {n for n in names_of(rows) if n.startswith("cell:")}
        for kept in (set[str](), *({n} for n in sorted(cells))):
            own += project(rows, cells - kept)[0]
    return without_implied([r for r in own if implied(r, a) and implied(r, b)])


# --------------------------------------------------------------------------- layout


@dataclass(frozen=True, slots=True)
class _Array:
    """``layout``: coordinates in the copy, in terms of ``_x``; ``program``: one that has the array."""

    array: Buffer
    copy: Buffer
    layout: tuple[Affine, ...]
    cells: _Cells
    program: MdhProgram

    def moved(self, index: Sequence[Affine]) -> tuple[Affine, ...]:
        values = {_x(k): a for k, a in enumerate(index)}
        return tuple(y.substitute(values) for y in self.layout)

    def copies(self, there: bool) -> Iterator[MdhProgram]:
        for rows in self.cells.read if there else self.cells.written:
            yield self._copied(rows, there)

    def _copied(self, rows: Rows, there: bool) -> MdhProgram:
        p = self.program
        used = {x.name for x in p.params} | {b.name for b in p.buffers} | {self.copy.name}
        names = [fresh(n, used) for n in _letters(len(self.layout))]
        box = [_range([rows], Affine.of(_x(k))) for k in range(len(names))]
        ends = [e for e in box if e is not None]
        assert len(ends) == len(names), "looked at before there is an array"
        known = {_x(k): Affine.of(names[k]) + first for k, (first, _) in enumerate(ends)}
        bounded = [r for k, e in enumerate(ends) for r in (Affine.of(_x(k)) - e[0], e[1] - Affine.of(_x(k)))]
        domain = [r for r in rows if not implied(r, bounded)]
        index = tuple(known[_x(k)] for k in range(len(names)))
        source, goal = (self.array.name, index), (self.copy.name, self.moved(index))
        if not there:
            source, goal = goal, source
        t = self.array.type
        shapes = (e for b in (self.array, self.copy) for e in (*b.extents, *(b.strides or ())))
        needed = names_of([*rows, *index, *self.moved(index), *(e for e in shapes if e is not None)])
        return replace(
            p,
            params=tuple(x for x in p.params if x.name in needed),
            buffers=(self.array, self.copy),
            inp=InputView((Access(*source),)),
            hom=MdHom(
                tuple(Dim(n, Size(b - a + 1)) for n, (a, b) in zip(names, ends, strict=True)),
                ScalarFunction((Operand(0, t),)),
                (CC,) * len(names),
                tuple(Constraint(r.substitute(known)) for r in domain),
            ),
            out=OutputView((None,), (Store(*goal, Result(0, t)),)),
            functions=(),
            assumptions=tuple(dict.fromkeys(self._inside(rows, ends))),
        )

    def _inside(self, rows: Rows, ends: Sequence[tuple[Affine, Affine]]) -> Iterator[Affine]:
        """What has to hold so that the cells lie within the array's lines, where ``rows`` do not say it."""
        for k, extent in enumerate(self.array.extents):
            here = Affine.of(_x(k))
            if k and not implied(here, rows):
                yield ends[k][0]
            if k and extent is not None and not implied(extent - 1 - here, rows):
                yield extent - 1 - ends[k][1]


def _letters(rank: int) -> list[str]:
    return [*"ijklmn"[:rank]] if rank <= 6 else [f"i{k}" for k in range(rank)]


def _laid_out(
    programs: Sequence[MdhProgram], name: str, v: tuple[int, ...], cells: _Cells, wish: str
) -> _Array | None:
    program = next(p for p in programs for b in p.buffers if b.name == name)
    array, x = program.buffer(name), [Affine.of(_x(k)) for k in range(len(v))]
    axis = next(k for k, n in enumerate(v) if abs(n) == 1)
    layout = [x[m] - x[axis] * (v[m] * v[axis]) for m in range(len(v)) if m != axis]
    layout.append(x[axis] * v[axis])
    every = [*cells.read, *cells.written]
    ranges = [_range(every, y) for y in layout]
    boxes = [_range([rows], y) for rows in every for y in x]
    if None in ranges or None in boxes:
        return None
    ends = [e for e in ranges if e is not None]
    extents = tuple(last - first + 1 for first, last in ends)
    copy = Buffer(wish, array.type, extents)
    offset = tuple(y - first for y, (first, _) in zip(layout, ends, strict=True))
    return _Array(array, copy, offset, cells, program)


def _range(pieces: Sequence[Rows], value: Affine) -> tuple[Affine, Affine] | None:
    """The least and the greatest value of all points, in terms of parameters; None where no bound tells."""
    here = Affine.of("?")
    lower, upper, known = list[Affine](), list[Affine](), list[Rows]()
    for rows in pieces:
        cells = {n for n in names_of([*rows, value]) if n.startswith("cell:")}
        left, _ = project([*rows, here - value, value - here], cells)
        known.append(left)
        ends = [*left, *project(left, names_of(left) - {"?"})[0]]
        lower += [here - r for r in ends if r.coefficient("?") == 1]
        upper += [here + r for r in ends if r.coefficient("?") == -1]
    low = [a for a in dict.fromkeys(lower) if all(implied(here - a, rows) for rows in known)]
    high = [a for a in dict.fromkeys(upper) if all(implied(a - here, rows) for rows in known)]
    if not low or not high:
        return None
    closest = (a for a in low if all(implied(a - b, rows) for b in low for rows in known))
    nearest = (a for a in high if all(implied(b - a, rows) for b in high for rows in known))
    return next(closest, low[0]), next(nearest, high[0])


# --------------------------------------------------------------------------- the loop


def _with(p: MdhProgram, arrays: dict[str, _Array]) -> MdhProgram:
    """The program with the arrays' copies."""
    types = {x.name: x.type for x in p.params}

    def load(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in arrays:
            return None
        known = [a for a in map(as_affine, e.index) if a is not None]
        a = arrays[e.buffer]
        scalars = {n: t for n, t in types.items() if isinstance(t, ScalarType)}
        return replace(e, buffer=a.copy.name, index=tuple(affine_expr(y, scalars) for y in a.moved(known)))

    def placed(name: str, index: tuple[Affine, ...]) -> tuple[str, tuple[Affine, ...]]:
        a = arrays.get(name)
        return (name, index) if a is None else (a.copy.name, a.moved(index))

    accesses, stores = list[Access](), list[Store]()
    for x in p.inp.accesses:
        name, index = placed(x.buffer, x.index)
        accesses.append(replace(x, buffer=name, index=index))
    for s in p.out.stores:
        name, index = placed(s.buffer, s.index)
        stores.append(replace(s, buffer=name, index=index))
    moved = replace(
        p,
        buffers=tuple(arrays[b.name].copy if b.name in arrays else b for b in p.buffers),
        inp=InputView(tuple(accesses)),
        out=replace(p.out, stores=tuple(stores)),
    )
    return with_expressions(moved, lambda e: rewrite(e, load))
