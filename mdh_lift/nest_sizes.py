"""Sizes of a lifted nest: the variables that its integer parameters stand for, and values to tune for.

    in     a lifted nest; values of variables, by name
    out    values of all integer parameters, by their names in the programs

Variables are what the source names (``n``, a member ``m->rows``, ``*k``); a parameter may be computed from
several of them.  Values are those of the directive's ``sizes`` clause, or such as make some work.

Shown right by tests/test_legacy.py and tests/test_assume.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from emit.host_text import leaves
from lifter.lift import LiftedNest
from lifter.trees import loops_in
from mdh_core.expr import Affine, ScalarType, as_affine
from mdh_core.ir import Buffer, Param
from mdh_lift import iterations
from mdh_lift.c_value import NotAnInteger, divisors_in, is_place, names_in, value

# extent of every dimension whose size is a parameter, by the number of such dimensions
_USUAL_EXTENTS = {1: 1 << 23, 2: 2048, 3: 512, 4: 96, 5: 40}
_MANY_DIMENSIONS = 16
_MOST_POINTS = 1 << 27
_NO_EXTENT = 64  # of a parameter that is no size
_AN_ADDRESS = 1  # of an array: it is there
_STEP = 32  # of one that a loop goes by
_FEW_POINTS = 1 << 20
_PLACE = 3  # of one that says where in an array, or in a loop's range, the nest begins


def is_derived(p: Param) -> bool:
    """Is the parameter computed from variables and members, instead of being one?"""
    return bool(p.value) and not is_place(p.value)


def _variable(p: Param) -> str:
    """The variable that a parameter stands for; a member or ``*p`` goes by the parameter's name."""
    return p.value if p.value.isascii() and p.value.isidentifier() else p.name


def variables_of(lifted: LiftedNest) -> dict[str, Param]:
    """Variables that the nest's parameters stand for, and a parameter that tells the type of each.

    Members and ``*p`` are among them, by the names that ``places_of`` gives them.
    """
    params = lifted.nest.params
    found = {_variable(p): p for p in params if not is_derived(p)}
    known, places = {p.name for p in params}, places_of(lifted)
    for p in params:
        if is_derived(p):
            names = [places[name] for name in names_in(p.value) if name not in known and name in places]
            found |= {name: p for name in names if name not in found}
    return found


def _addresses(lifted: LiftedNest) -> set[str]:
    """Pointers of which the nest may ask whether they are null: to arrays and to structs."""
    return {b.name for b in lifted.nest.buffers} | {r.name for r in lifted.nest.roots if not r.unset}


def places_of(lifted: LiftedNest) -> dict[str, str]:
    """Identifiers for what integer texts read: ``{"n": "n", "m->rows": "m_rows", "*k": "k_value"}``."""
    params = lifted.nest.params
    found = {p.value or p.name: _variable(p) for p in params if not is_derived(p)}
    there = _addresses(lifted)
    known = {p.name for p in params} | there | set(found.values())
    for p in params:
        for place in names_in(p.value) if is_derived(p) else ():
            if place in found or place in there:  # whether there is an array, as there is
                continue
            name = re.sub(r"\W+", "_", place.lstrip("*"), flags=re.ASCII)
            while name != place and name in known:
                name += "_"
            found[place] = name
            known.add(name)
    return found


def sizes_of(lifted: LiftedNest) -> dict[str, int]:
    """A value for every integer variable: that of the first ``sizes`` clause, or one that makes some work."""
    depths = [
        sum(n.constant is None for n in iterations.all_sizes(p, loops))
        for p, loops in iterations.placed(lifted.program)
    ]
    extent = _USUAL_EXTENTS.get(max([1, *depths]), _MANY_DIMENSIONS)
    sizes = _sizes_with(lifted, extent)
    while extent > 1 and (_points(lifted, sizes) > _MOST_POINTS or not _counters_reach(lifted, sizes)):
        extent //= 2
        sizes = _sizes_with(lifted, extent)
    while _steps_of(lifted) and extent < 1 << 23 and _points(lifted, sizes) < _FEW_POINTS:
        extent *= 2
        sizes = _sizes_with(lifted, extent)
    return sizes


def _counters_reach(lifted: LiftedNest, sizes: Mapping[str, int]) -> bool:
    """Whether counters of less than 32 bits get to where their loops end; others are taken to."""
    values: dict[str, int] | None = None
    for x in loops_in(lifted.nest.body):
        end = as_affine(x.upper if x.step > 0 else x.lower)
        if x.type.bits >= 32 or end is None:
            continue
        values = parameter_values(lifted, sizes) if values is None else values
        largest = (1 << (x.type.bits - x.type.is_signed)) - 1
        if end.names <= values.keys() and end.evaluate(values) > largest:
            return False
    return True


def _steps_of(lifted: LiftedNest) -> set[str]:
    """Variables that divide lengths: the steps of loops (``b += 2 * half``)."""
    places = places_of(lifted)
    found = {name for p in lifted.nest.params if is_derived(p) for name in divisors_in(p.value)}
    return {places[name] for name in found & places.keys()}


def _sizes_with(lifted: LiftedNest, extent: int) -> dict[str, int]:
    sizes, places = extents_and_places(lifted)
    steps = _steps_of(lifted)
    clause = dict(lifted.nest.directive.sizes[0]) if lifted.nest.directive.sizes else {}
    values = {}
    for name, param in variables_of(lifted).items():
        if isinstance(param.type, ScalarType) and param.type.is_integer:
            usual = extent if name in sizes else _PLACE if name in places else _NO_EXTENT
            values[name] = clause.get(name, min(usual, _STEP) if name in steps else usual)
    return values


def extents_and_places(lifted: LiftedNest) -> tuple[set[str], set[str]]:
    """Variables that say how long loops or arrays are, and others that say where in them the nest begins.

    ``for (i = lo; i < hi; i++) x[p * n + i]``: hi and n; lo and p.
    """
    lengths = [*_lengths(lifted), *(s for b in _buffers(lifted) for s in b.strides or ())]
    grow = {name for a in lengths for name, c in a.terms if c > 0}
    placing = {name for a in lengths for name, c in a.terms if c < 0} | shaping_of(lifted)
    params = {p.name: p for p in lifted.nest.params}
    places = places_of(lifted)

    def variables(names: set[str]) -> set[str]:
        found: set[str] = set()
        for p in (params[n] for n in names & params.keys()):
            if is_derived(p):
                found |= {places[x] for x in names_in(p.value) if x in places}
            else:
                found.add(_variable(p))
        return found

    sizes = variables(grow)
    return sizes, variables(placing) - sizes


def all_stated(lifted: LiftedNest, sizes: Mapping[str, int] | None = None) -> bool:
    """Whether the caller, or the directive's first ``sizes`` clause, named all lengths and places."""
    named = sizes or dict((*lifted.nest.directive.sizes, ())[0])
    return bool(named) and set().union(*extents_and_places(lifted)) <= named.keys()


def _lengths(lifted: LiftedNest) -> list[Affine]:
    """Of loops, and extents of arrays."""
    found = [d.size.span for p in lifted.programs for d in p.hom.dims]
    found += [x.size.span for _, loops in leaves(lifted.program) for x in loops]
    for b in _buffers(lifted):
        found += [e for e in b.extents if e is not None]
    return found


def _buffers(lifted: LiftedNest) -> list[Buffer]:
    return [*lifted.nest.buffers, *(b for leaf, _ in leaves(lifted.program) for b in leaf.buffers)]


def shaping_of(lifted: LiftedNest) -> set[str]:
    """Names in extents of loops and buffers, and in index functions (leading dimensions)."""
    found = _lengths(lifted)
    for p in lifted.programs:
        found += [x for a in p.inp.accesses for x in a.index] + [x for s in p.out.stores for x in s.index]
    return {name for a in found for name in a.names}


def _points(lifted: LiftedNest, sizes: Mapping[str, int]) -> float:
    """Iteration points of all programs."""
    return iterations.points(lifted.program, parameter_values(lifted, sizes))


def parameter_values(lifted: LiftedNest, sizes: Mapping[str, int | float]) -> dict[str, int]:
    """Values of all integer parameters by their names in the programs, from those of the variables.

    Raises ``NotAnInteger`` or ``KeyError`` where one cannot be told.
    """
    known = {name: int(v) for name, v in sizes.items()}
    named = {place: known[name] for place, name in places_of(lifted).items() if name in known}
    named |= {name: _AN_ADDRESS for name in _addresses(lifted) if name not in known}
    found: dict[str, int] = {}
    for p in lifted.nest.params:
        if isinstance(p.type, ScalarType) and p.type.is_integer:
            found[p.name] = value(p.value, known | named | found) if is_derived(p) else known[_variable(p)]
    return found


def keeps_assumptions(lifted: LiftedNest, sizes: Mapping[str, int | float]) -> bool:
    """Whether all holds that generated code tests before it runs; what cannot be told here counts as true.

    For other sizes the original runs, which may mean nothing then (a loop by steps of 0), or not end
    (a counter of 8 bits on its way to 200).
    """
    try:
        values = parameter_values(lifted, sizes)
        if not _counters_reach(lifted, {name: int(v) for name, v in sizes.items()}):
            return False
    except (NotAnInteger, KeyError):
        return True
    known = {name: int(v) for name, v in sizes.items()} | values
    for text in lifted.nest.directive.assume:
        with suppress(NotAnInteger):
            if not value(text, known):
                return False
    tested = [a for p in lifted.programs for a in p.assumptions if a.names <= values.keys()]
    return all(a.evaluate(values) >= 0 for a in tested)
