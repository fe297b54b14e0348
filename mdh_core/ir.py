"""The high-level representation: ``out_view ∘ md_hom ∘ inp_view`` as frozen values.

    step     ::= MdhProgram | HostLoop(iterator, size, body: step*) | Sequential(body: stmt*, reason)
    program  ::= MdhProgram(params, buffers, functions, out: OutputView, hom: MdHom, inp: InputView)
    hom      ::= MdHom(dims: Dim*, scalar: ScalarFunction, combine: CombineOp*,   # one op per dim
                       domain: Constraint*)                       # none: the whole box
    dim      ::= Dim(name, size: Size)                            # index set [0, size)
    scalar   ::= ScalarFunction(body: stmt*, results: expr+)      # one expression per component
    inp      ::= InputView(accesses: Access*)
    access   ::= Access(buffer, index: Affine*)                   # index function, one per buffer dim
    out      ::= OutputView(initial: (expr | None)*, stores: Store*)
    store    ::= Store(buffer, index: Affine*, value: expr, at_last: name*)

What goes beyond the published form (mdh.md 2.2, "details an implementation must decide"):

* ``initial`` is, per component, the value that the result is combined with (on the left): the
  accumulator's value before the loops.  It may read buffers at the output position
  (``w[i] += ...`` reads the old ``w[i]``).  For an empty reduced dimension it *is* the result.
  None means that there is none: results are then defined for non-empty dimensions only.  Either all
  components have one or none has, as an operator combines whole tuples.
* ``value`` is what is stored, an expression over ``Result(c)``, loads at the output position and
  parameters; plain ``Result(c)`` is the published out_view, anything else is an epilogue.
* ``at_last`` names ``cc``/``ps`` dimensions of which only the last index is stored (the final value of a
  running accumulator, or of a scalar overwritten in every iteration).

``domain`` makes the index set the part of the box ``[0, size) x ...`` where every constraint (affine over
dimensions and parameters) holds.  Constraints that mention no ``pw`` dimension say which positions the
result has: nothing is stored elsewhere.  The others say which points contribute to a position; where
there are none, the result is ``initial``, as for an empty ``pw`` dimension.  ``ps`` and ``at_last``
dimensions are mentioned in no constraint.

A ``Load`` in the scalar function (``x[idx[i]]``) reads a buffer at indices that are computed from data; the
program does not write that buffer, and whoever moves the load must keep its conditions.

A nest becomes *steps* that run one after the other.  ``HostLoop`` runs its body for ``iterator`` = 0, 1, …,
size - 1, in order; the steps inside see the iterator as an integer parameter of this name.
``Sequential`` holds statements without loops that were not lifted; they run as they stand (``Load`` of
buffers, a 0-dimensional one for a scalar), with the enclosing iterators as parameters.

Index functions, ``initial`` and ``value`` mention dimensions by name; a dimension's index counts
from 0.  ``Size`` is ``max(0, ceil(span / step))`` with an affine span over the parameters.
All reads of a program happen before all of its writes, except that a cell may be read at the
very point that writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mdh_core.combine import CombineFunction, CombineOp
from mdh_core.expr import (
    Affine,
    Constraint,
    Expr,
    Function,
    Load,
    RecordType,
    Result,
    ScalarType,
    Stmt,
    Type,
    as_affine,
    map_stmts,
    stmt_exprs,
    walk,
)
from mdh_core.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class Size:
    span: Affine
    step: int = 1

    def evaluate(self, params: dict[str, int]) -> int:
        return max(0, -(-self.span.evaluate(params) // self.step))

    @property
    def constant(self) -> int | None:
        return self.evaluate({}) if self.span.is_constant else None

    def __str__(self) -> str:
        return str(self.span) if self.step == 1 else f"ceil(({self.span})/{self.step})"


@dataclass(frozen=True, slots=True)
class Dim:
    name: str
    size: Size


@dataclass(frozen=True, slots=True)
class Param:
    """A scalar that the nest only reads: a size, a bound, a coefficient.

    ``value`` is C text evaluated where the nest stands (the name itself for a plain variable).
    ``minimum``: a known lower bound of an integer parameter, or None.
    """

    name: str
    type: ScalarType | RecordType
    value: str = field(default="", compare=False)
    c_type: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A C array (or a scalar variable: no extents) that a program reads or writes.

    extents   one per dimension, outermost first; None where C does not say (``float *A``, ``A[]``)
    strides   None for the dense row-major layout of ``extents``; otherwise elements per step
    base      C text whose value is the address of element 0 (``A``, ``&s``, ``&A[0][0]``)
    """

    name: str
    type: Type
    extents: tuple[Affine | None, ...]
    strides: tuple[Affine, ...] | None = None
    restrict: bool = False
    base: str = field(default="", compare=False)
    c_type: str = field(default="", compare=False)
    distinct: bool = field(default=False, compare=False)  # an array object of its own, not a pointer

    @property
    def rank(self) -> int:
        return len(self.extents)


@dataclass(frozen=True, slots=True)
class Access:
    buffer: str
    index: tuple[Affine, ...]
    conditional: bool = False  # read only under a condition: never load it speculatively
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InputView:
    accesses: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """``body`` computes locals; ``results`` gives the components.  Operands are ``Operand(k)``;
    a ``Var`` that names a dimension is the MDA index (mdh.md 2.2, position-dependent)."""

    results: tuple[Expr, ...]
    body: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class MdHom:
    dims: tuple[Dim, ...]
    scalar: ScalarFunction
    combine: tuple[CombineOp, ...]
    domain: tuple[Constraint, ...] = ()

    @property
    def function(self) -> CombineFunction | None:
        """The combine function of the reduced and scanned dimensions (one for all, see verify)."""
        return next((op.function for op in self.combine if op.function is not None), None)

    def dims_of(self, *kinds: str) -> tuple[Dim, ...]:
        return tuple(d for d, op in zip(self.dims, self.combine, strict=True) if op.kind in kinds)


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    index: tuple[Affine, ...]
    value: Expr
    at_last: tuple[str, ...] = ()

    @property
    def plain(self) -> int | None:
        """The component stored as it is, or None where there is an epilogue."""
        return self.value.component if isinstance(self.value, Result) else None


@dataclass(frozen=True, slots=True)
class OutputView:
    initial: tuple[Expr | None, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class MdhProgram:
    name: str
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    inp: InputView
    hom: MdHom
    out: OutputView
    functions: tuple[Function, ...] = ()
    fp: str = "fast"  # exact | deterministic | fast
    assumptions: tuple[Affine, ...] = ()  # over the parameters; each must be >= 0 at run time
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    def __hash__(self) -> int:
        """Of what tells most programs apart: they are large, and what is known of each is remembered."""
        accesses = tuple([a.buffer for a in self.inp.accesses])
        return hash((self.name, len(self.hom.dims), len(self.hom.scalar.body), accesses, self.fp))

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def dim(self, name: str) -> Dim:
        return next(d for d in self.hom.dims if d.name == name)

    def op(self, name: str) -> CombineOp:
        return next(op for d, op in zip(self.hom.dims, self.hom.combine, strict=True) if d.name == name)

    def sizes(self, params: dict[str, int]) -> dict[str, int]:
        """The extent of each dimension for given values of the integer parameters."""
        return {d.name: d.size.evaluate(params) for d in self.hom.dims}

    @property
    def component_types(self) -> tuple[Type, ...]:
        return tuple(e.type for e in self.hom.scalar.results)


@dataclass(frozen=True, slots=True)
class HostLoop:
    """``body`` for ``iterator`` = 0 … size - 1 in this order.

    reason  the code of the diagnostic that tells why the loop is no dimension (MDH213, MDH207 …)
    """

    iterator: str
    size: Size
    body: tuple[Step, ...]
    source_name: str = field(default="", compare=False)
    reason: str = field(default="", compare=False)
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sequential:
    """Statements that stay as they were; ``reason``: the code of the diagnostic that tells why.

    ``params``, ``buffers``, ``functions``: what the statements mention, as in a program.
    """

    body: tuple[Stmt, ...]
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    functions: tuple[Function, ...] = ()
    reason: str = field(default="", compare=False)
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


Step = MdhProgram | HostLoop | Sequential


def keeps_if_empty(store: Store, initial: Sequence[Expr | None]) -> bool:
    """Does a store leave its cell as it was where nothing is combined (``C[i] += …``)?"""
    start = None if store.plain is None else initial[store.plain]
    if not isinstance(start, Load) or start.buffer != store.buffer:
        return False
    return tuple(as_affine(i) for i in start.index) == store.index


def read_buffers(program: MdhProgram) -> set[str]:
    """Buffers that a program reads: as operands, at computed indices, as initial or stored values."""
    scalar = program.hom.scalar
    exprs = (*scalar.results, *stmt_exprs(scalar.body), *(s.value for s in program.out.stores))
    exprs += tuple(e for e in program.out.initial if e is not None)
    return {a.buffer for a in program.inp.accesses} | {
        n.buffer for e in exprs for n in walk(e) if isinstance(n, Load)
    }


def reads_own_cell(s: Store) -> bool:
    """Whether what is stored is computed from what the cell holds."""
    loads = (n for n in walk(s.value) if isinstance(n, Load) and n.buffer == s.buffer)
    return any(tuple(map(as_affine, n.index)) == s.index for n in loads)


def programs_of(steps: Iterable[Step]) -> Iterator[MdhProgram]:
    """All programs, in the order of the text."""
    for s in steps:
        if isinstance(s, MdhProgram):
            yield s
        elif isinstance(s, HostLoop):
            yield from programs_of(s.body)


def with_expressions(p: MdhProgram, expr: Callable[[Expr], Expr]) -> MdhProgram:
    """The program with others for its expressions: of the scalar function, initial and stored values."""
    scalar, out = p.hom.scalar, p.out
    return replace(
        p,
        hom=replace(
            p.hom,
            scalar=replace(
                scalar, results=tuple(map(expr, scalar.results)), body=map_stmts(scalar.body, expr)
            ),
        ),
        out=replace(
            out,
            initial=tuple(None if e is None else expr(e) for e in out.initial),
            stores=tuple(replace(s, value=expr(s.value)) for s in out.stores),
        ),
    )
