"""Do a combine function's laws hold?  Random values answer for a user's word (and for the table).

An MDH needs the laws on the values it meets only (mdh.md 2.2), so values are drawn with care:

* Positions of ``argmin``/``argmax`` are never shared by two values, as parts of an MDA are disjoint.
* Among the fields of a record at most one is drawn from few values, so that it is often equal in two
  records; all others differ.  A tie that is broken by another field is thus met, while two
  records that agree in both, and could be told apart by neither, are not.
* The operators of ``&&`` and ``||`` work on 0 and 1.
* Floating-point values are small integers, on which ``+`` and ``*`` are exact.
* Commutativity is a law only of the functions that claim it.
* A user's function sees no value that makes its signed arithmetic overflow: C gives that no meaning.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from mdh_core.combine import CombineFunction
from mdh_core.evaluate import EvaluationError, Value, convert
from mdh_core.expr import INT64, LOGICAL, Binary, Const, Expr, Function, RecordType, ScalarType, Select, Type
from mdh_core.interpreter import Combine, Values, combine_function, same


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A law that fails, on which values, and the two sides' values."""

    law: str  # "associative", "commutative" or "identity"
    values: tuple[Values, ...]
    left: Values
    right: Values

    def __str__(self) -> str:
        values = ", ".join(map(_shown, self.values))
        return f"not {self.law} on {values}: {_shown(self.left)} and {_shown(self.right)}"


def _shown(v: Values) -> str:
    return str(v[0]) if len(v) == 1 else str(v)


def check_laws(
    f: CombineFunction, functions: Sequence[Function], rng: random.Random, samples: int = 200
) -> Counterexample | None:
    """The first counterexample to commutativity, associativity or the identity, or None.

    Values on which the function is not defined (a division by zero) are passed over.
    """
    apply = combine_function(f, functions, trap_overflow=f.promised)
    for _ in range(samples):
        values = _sample(f, rng)
        try:
            found = _broken_law(f, apply, values)
        except EvaluationError:
            continue
        if found is not None:
            return found
    return None


def _broken_law(f: CombineFunction, apply: Combine, values: tuple[Values, ...]) -> Counterexample | None:
    a, b, c = values
    laws: list[tuple[str, tuple[Values, ...], Values, Values]] = []
    if f.commutative:
        laws.append(("commutative", (a, b), apply(a, b), apply(b, a)))
    laws.append(("associative", (a, b, c), apply(apply(a, b), c), apply(a, apply(b, c))))
    if f.identity is not None:
        e = tuple(convert(k.value, k.type) for k in f.identity)
        laws += [("identity", (a,), apply(e, a), a), ("identity", (a,), apply(a, e), a)]
    for law, operands, left, right in laws:
        if not _agree(f, left, right):
            return Counterexample(law, operands, left, right)
    return None


def _agree(f: CombineFunction, x: Values, y: Values) -> bool:
    """Exactly, but up to rounding for a user's function on floating-point values."""
    if all(map(same, x, y)):
        return True
    return f.promised and not f.exact and all(map(_nearly, _flat(x), _flat(y)))


def _flat(v: Values) -> list[int | float | None]:
    return [u for component in v for u in (component if isinstance(component, tuple) else (component,))]


def _nearly(x: int | float | None, y: int | float | None) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return same(x, y) or isclose(x, y, rel_tol=1e-5, abs_tol=1e-5)
    return x == y


# --------------------------------------------------------------------------- values


def _sample(f: CombineFunction, rng: random.Random) -> tuple[Values, ...]:
    """Three values of the operator's tuple type."""
    columns = [_column(f, t, v, rng) for t, v in zip(f.types, f.values, strict=True)]
    return tuple(zip(*columns, strict=True))


def _column(f: CombineFunction, t: Type, value: Expr, rng: random.Random) -> list[Value]:
    """One component of three values."""
    if isinstance(t, RecordType):
        tied = rng.randrange(len(t.fields))
        fields = [_numbers(u, rng, few=k == tied, apart=k != tied) for k, (_, u) in enumerate(t.fields)]
        return list(zip(*fields, strict=True))
    if _is_truth(value):
        return [rng.randrange(2) for _ in range(3)]
    position = "arg" in f.name and t == INT64
    return list(_numbers(t, rng, few=rng.random() < 0.5, apart=position, extreme=not f.promised))


def _is_truth(e: Expr) -> bool:
    """Does an operator's expression say "1 if ... && ... else 0"?"""
    return (
        isinstance(e, Select)
        and isinstance(e.cond, Binary)
        and isinstance(e.then, Const)
        and e.cond.op in LOGICAL
    )


def _numbers(
    t: ScalarType, rng: random.Random, few: bool, apart: bool, extreme: bool = False
) -> list[int | float]:
    """Three numbers: from few values, or from many; all different if ``apart``."""
    reach = 2 if few and not apart else rng.choice((8, 100))
    chosen = rng.sample(range(-reach, reach + 1), 3) if apart else rng.choices(range(-reach, reach + 1), k=3)
    if extreme and t.is_integer and not apart and rng.random() < 0.3:
        chosen = [rng.getrandbits(64) for _ in range(3)]
    return [convert(n, t) for n in chosen]
