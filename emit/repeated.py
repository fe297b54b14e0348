"""Choices and calls that an expression computes more than once, named before it.

before   (a > b ? a : b) > c ? (a > b ? a : b) : c          macros like MAX repeat what they are given
after    const int choice = a > b ? a : b;   choice > c ? choice : c

Named is what is computed in any case, so that nothing is read that the source does not read.  Products and
sums are not, so that a compiler that contracts within expressions finds those that it found before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from mdh_core.expr import Binary, Call, Expr, Select, Var, children, rewrite, substitute, walk


def without_repeats(e: Expr, name: Callable[[Expr], Var]) -> Expr:
    """The expression where what is repeated is a variable; ``name`` is told of each, in order of need."""
    stand_ins: list[str] = []  # of larger ones first
    texts = [e]  # the expression, and what each of them stands for
    while (repeated := _largest_repeated(texts)) is not None:
        stand_ins.append(f"repeated:{len(stand_ins)}")
        here = Var(stand_ins[-1], repeated.type)
        texts = [*(_replaced(t, repeated, here) for t in texts), repeated]
    names: dict[str, Expr] = {}
    for stand_in, text in reversed(list(zip(stand_ins, texts[1:], strict=True))):
        names[stand_in] = name(substitute(text, names))
    return substitute(texts[0], names)


def _largest_repeated(texts: list[Expr]) -> Expr | None:
    """The last of the largest (named before it are the others): sets have another order in every process."""
    counts = Counter[Expr](n for t in texts for n in walk(t) if isinstance(n, Select | Call))
    always = set[Expr]().union(*map(_always, texts))
    repeated = [n for n, times in counts.items() if times > 1 and n in always]
    return max(reversed(repeated), key=lambda n: sum(1 for _ in walk(n)), default=None)


def _always(e: Expr) -> set[Expr]:
    """The choices and calls that are computed whenever the expression is."""
    match e:
        case Select(cond=cond, then=then, other=other):
            return {e} | _always(cond) | (_always(then) & _always(other))
        case Binary(op="&&" | "||", a=a):
            return _always(a)
    inner = set[Expr]().union(*map(_always, children(e)))
    return inner | {e} if isinstance(e, Call) else inner


def _replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    return rewrite(e, lambda n: new if n == old else None)
