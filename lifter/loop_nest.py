"""The lifter's input: a loop nest as plain data, the same from every source language.

    nest  ::= LoopNest(name, params, buffers, scalars, functions, directive, body: stmt*)
    stmt  ::= Loop(iterator, lower, upper, step, body: stmt*) | Declare | Assign | If | While
              (the last four from ``mdh_core.expr``; the body of a ``While`` holds no ``Loop``)

* ``Loop`` runs ``iterator = lower, lower+step, ...`` while it is below ``upper`` (above it for a negative
  step); bounds are loop-invariant expressions.  ``<=`` arrives as ``upper + 1``.
* Iterators, parameters and local scalars have unique names within a nest (a frontend renames
  shadowing declarations: ``i``, ``i_1``); ``source_name`` keeps the spelling for emitted code.
* Array reads are ``Load(buffer, index*)`` with one index per declared dimension; a flat pointer has
  one index, ``A[i*K + k]`` is not yet taken apart (the lifter delinearises).
* The branches of an ``If`` may hold loops.
* ``scalars`` are variables declared outside the nest that the nest writes.  ``live_after`` tells
  whether their value may be read after the nest; those that are live become 0-d outputs.
* A frontend hoists loop-invariant integer subexpressions that are not affine (``n/2``, ``a*b``) in bounds
  and subscripts into parameters with a ``value`` (C text).
* ``facts`` are affine values over the parameters that are not negative, as that of ``n - 2*p`` for
  ``p = n/2``.  It holds where ``n`` is not negative, which the generated code tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lifter.annotations import Directive
from mdh_core.diagnostics import Diagnostic
from mdh_core.expr import Affine, Assign, Declare, Expr, Function, If, RecordType, ScalarType, While
from mdh_core.ir import Buffer, Param
from mdh_core.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class Stride:
    """What a loop counts in the source: a variable that is ``first``, ``first + by``, ... below ``limit``.

    ``end``: the first of these values that is not below, as a parameter.
    """

    first: Expr
    by: Expr
    limit: Expr
    end: Expr | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    iterator: str
    type: ScalarType  # of the iterator
    lower: Expr
    upper: Expr  # exclusive
    step: int  # not 0
    body: tuple[NestStmt, ...]
    source_name: str = field(default="", compare=False)
    declared_outside: bool = field(default=False, compare=False)
    span: Span = field(default=NO_SPAN, compare=False, repr=False)  # the loop head
    observed: bool = field(default=False, compare=False)  # its final value may be read after the nest
    stride: Stride | None = field(default=None, compare=False, repr=False)  # steps of blocks


NestStmt = Loop | Declare | Assign | If | While


@dataclass(frozen=True, slots=True)
class OuterScalar:
    """A scalar (or record) variable declared outside the nest and written inside it."""

    name: str
    type: ScalarType | RecordType
    live_after: bool
    c_type: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Root:
    """A variable outside the nest of which the nest uses members, or what it points to: ``m`` of ``m->n``.

    ``declaration``: C text that declares it, without qualifiers and initial value (``matrix *m``).
    ``unset``: the nest sets it before it is read, so that only its text speaks of it.
    """

    name: str
    declaration: str
    unset: bool = False


@dataclass(frozen=True, slots=True)
class LoopNest:
    name: str  # path.c::function::label
    function: str
    label: str
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    scalars: tuple[OuterScalar, ...]
    body: tuple[NestStmt, ...]
    functions: tuple[Function, ...] = ()
    directive: Directive = field(default_factory=Directive)
    file: str = field(default="", compare=False)
    span: Span = field(default=NO_SPAN, compare=False, repr=False)  # the nest, without the directive
    directive_span: Span = field(default=NO_SPAN, compare=False, repr=False)
    function_span: Span = field(default=NO_SPAN, compare=False, repr=False)  # the enclosing function
    several: bool = field(default=False, compare=False)  # the span holds several statements, not one
    remarks: tuple[Diagnostic, ...] = field(default=(), compare=False, repr=False)  # of the frontend
    roots: tuple[Root, ...] = field(default=(), compare=False, repr=False)
    # arrays whose cells may be read whether or not a condition holds, as the nest touches them in any case
    touched: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    facts: tuple[Affine, ...] = ()

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)


def names_in_text(text: str) -> list[str]:
    """The identifiers in the C text of a parameter's value."""
    return re.findall(r"[A-Za-z_]\w*", text, re.ASCII)


def quotient_facts(whole: Affine, quotient: Affine, divisor: int) -> tuple[Affine, ...]:
    """What is known of the quotient of a number that is not negative, by a positive divisor.

    >>> [str(f) for f in quotient_facts(Affine.of("n"), Affine.of("p"), 2)]
    ['n - 2*p', '-n + 2*p + 1']
    """
    rest = whole - quotient * divisor
    return rest, -rest + (divisor - 1)
