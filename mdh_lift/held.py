"""Members of structs and targets of pointers -> C statements that put the harness's arguments there.

    for (i = 0; i < m->n; i++)        matrix *m = __builtin_alloca(sizeof *m);
        m->data[i] = *a * i;     ->   m->n = m_n;  m->data = (void *)m_data;
                                      double *a = __builtin_alloca(sizeof *a);  *a = a_value;

The nest is compared as it stands, so what it names must be there; the arguments have names of their own.
Variables that it sets itself before it reads them have none: they are declared.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from lifter.lift import LiftedNest
from mdh_core.diagnostics import refuse
from mdh_lift.c_value import is_place
from mdh_lift.nest_sizes import places_of

_CONVERTED = re.compile(r"\(\([^()]*\*\)(.*)\)")  # ((double *)m->data)
_INDIRECT = re.compile(r"->\w+", re.ASCII)


def held_by_roots(lifted: LiftedNest, written: Collection[str]) -> tuple[str, str]:
    """Statements before the nest, and after it: those that give back what it changed (``written`` buffers).

    Raises ``Refusal`` MDH804 for arrays that lie inside of a struct.
    """
    nest = lifted.nest
    if not nest.roots:
        return "", ""
    names = {root.name for root in nest.roots}
    stores: dict[str, str] = {}
    back: list[str] = []
    for place, name in [*((p.value, p.name) for p in nest.params), *places_of(lifted).items()]:
        if _root(place) in names and is_place(place) and place != _root(place):
            stores.setdefault(place, f"{place} = {name};")
    for b in nest.buffers:
        converted = _CONVERTED.fullmatch(b.base)
        place = converted[1] if converted else b.base
        if place.startswith("&") and not b.rank and is_place(place[1:]) and _root(place) in names:
            stores[place[1:]] = f"{place[1:]} = *{b.name};"
            back += [f"*{b.name} = {place[1:]};"] if b.name in written else []
        elif _root(place) in names and place != _root(place):
            if not is_place(place) or (b.rank and b.extents[0] is not None):  # pointers have no first extent
                raise refuse(
                    "MDH804", f"array `{place.strip('&')}` lies inside of a struct", nest.span,
                    help="take its address before the nest (`T *a = m->a;`) and use that",
                )  # fmt: skip
            stores[place] = f"{place} = (void *){b.name};"
    lines: list[str] = []
    made: set[str] = set()
    for root in nest.roots:
        of_root = [place for place in stores if _root(place) == root.name]
        if not of_root and not root.unset:
            continue
        lines.append(f"{root.declaration};")
        for place in of_root:
            inside = [place[: m.start()] for m in _INDIRECT.finditer(place)]
            for pointer in [root.name] if place.startswith("*") else inside:
                if pointer not in made:
                    made.add(pointer)
                    lines.append(f"{pointer} = __builtin_alloca(sizeof *{pointer});")
        lines += [stores[place] for place in of_root]
    return "".join(f"{line}\n" for line in lines), "".join(f"{line}\n" for line in back)


def _root(place: str) -> str:
    """``m`` of ``m->n``, ``&m->n``, ``*m``."""
    found = re.match(r"[&*]?([A-Za-z_]\w*)", place, re.ASCII)
    return found[1] if found else ""


__all__ = ["held_by_roots"]
