"""What stands around the programs of a kernel: loops on the host, statements that stay sequential.

    for (long k = 0; k < n; k++) {          HostLoop; sizes that mention k are computed inside
      const long j_size = -k + n - 1;
      d[0] = a[k*n + k];                    Sequential
      ...                                   programs, as in a kernel without host loops
    }

``bound`` gives what holds for *all* iterations: guards and allocations stand before the loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from emit.c_text import Printer
from emit.kernel_text import Context, Lines, Names
from lowering.loops import size_name
from mdh_core.expr import Affine, Declare, Expr, Load, ScalarType, as_affine
from mdh_core.ir import (
    Buffer,
    HostLoop,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    ScalarFunction,
    Sequential,
    Size,
    Step,
)

Leaf = MdhProgram | Sequential
Loops = tuple[HostLoop, ...]  # outermost first


def leaves(steps: Iterable[Step], loops: Loops = ()) -> Iterator[tuple[Leaf, Loops]]:
    """Programs and sequential parts in the order of the text, each with the host loops around it."""
    for s in steps:
        if isinstance(s, HostLoop):
            yield from leaves(s.body, (*loops, s))
        else:
            yield s, loops


# --------------------------------------------------------------------------- bounds


def extreme(a: Affine, dims: Mapping[str, Size], loops: Loops, largest: bool) -> Affine:
    """A bound on an affine value over all points, in all iterations, over sizes and parameters.

    Nothing is lost where sizes have step 1, apart from iterations in which a dimension is empty.  What is
    returned for loops that never run means nothing.
    """
    iterators = {loop.iterator for loop in loops}
    for name, size in dims.items():
        if iterators & size.span.names:
            a = _at_end(a, name, size, largest)
        elif (a.coefficient(name) > 0) == largest:
            a = a.substitute({name: Affine.of(size_name(name)) - 1})
        else:
            a = a.substitute({name: Affine.number(0)})
    for loop in reversed(loops):
        a = _at_end(a, loop.iterator, loop.size, largest)
    return a


_MOST_BOUNDS = 8
_USUAL = 1000  # of every name, to tell which bound is the tighter one


def tightest(
    a: Affine, dims: Mapping[str, Size], loops: Loops, rows: Sequence[Affine], largest: bool
) -> Affine:
    """A bound as ``extreme`` gives it, or a tighter one that follows from the domain.

    before   -i + w + 1  at most, where  i in [0, n), w in [0, 2*n - 2) and i + n - w - 2 >= 0
    after    n - 1  (from i >= w + 2 - n); 2*n - 2  (from i >= 0, w <= 2*n - 3) is a bound, too

    rows   >= 0 at every point
    """
    order = [*reversed([*dims]), *(x.iterator for x in reversed(loops))]
    found = [extreme(a, dims, loops, largest)]
    waiting = [(a, frozenset[str]())]
    for _ in range(_MOST_BOUNDS * len(order)):
        if not waiting or len(found) >= _MOST_BOUNDS:
            break
        now, gone = waiting.pop()
        name = next((n for n in order if now.coefficient(n) and n not in gone), None)
        if name is None:
            found += [now] if not now.names & set(order) else []
            continue
        upper, gone = (now.coefficient(name) > 0) == largest, gone | {name}
        size = dims.get(name) or next(x.size for x in loops if x.iterator == name)
        waiting.append((_at_end(now, name, size, largest), gone))
        for r in rows:
            c, own = r.coefficient(name), now.coefficient(name)
            if c and (c < 0) == upper and own % c == 0 and not r.names & (gone - {name}):
                waiting.append((now - r * (own // c), gone))
    usual = {n: _USUAL for x in found for n in x.names}
    return (min if largest else max)(found, key=lambda x: x.evaluate(usual))


def _at_end(a: Affine, name: str, size: Size, largest: bool) -> Affine:
    """The value where a loop over ``0 .. size - 1`` makes it largest (smallest), or a bound on it."""
    c = a.coefficient(name)
    start = a.substitute({name: Affine.number(0)})
    if not c or (c > 0) != largest:
        return start
    known = size.constant
    if known is not None:
        return start + c * (known - 1)
    # size - 1 <= (span - 1) / step; a fraction is rounded away from zero
    share = -(-abs(c) // size.step)
    return start + (size.span - 1) * (share if c > 0 else -share)


def largest_size(size: Size, loops: Loops) -> Size:
    """The greatest value of a size over all iterations."""
    return Size(extreme(size.span, {}, loops, True), size.step)


# --------------------------------------------------------------------------- sequential statements


class SequentialText:
    """Writes the statements of one ``Sequential`` into ``out``."""

    def __init__(self, step: Sequential, names: Names, out: Lines) -> None:
        self.step = step
        self.out = out
        self.context = _context(step, names)
        self.integers = {p.name for p in step.params if isinstance(p.type, ScalarType) and p.type.is_integer}
        self.printer = Printer(self._leaf, functions=step.functions)

    def write(self) -> None:
        lines = self.printer.statements(self.step.body)
        if any(isinstance(s, Declare) for s in self.step.body):
            with self.out.block(""):
                self.out.rows[-1] = "  " * (self.out.indent - 1) + "{"
                self.out.add(*lines)
        else:
            self.out.add(*lines)

    def _leaf(self, e: Expr) -> str:
        return self._cell(e) if isinstance(e, Load) else self.context._leaf(e)

    def _cell(self, e: Load) -> str:
        index = known_index(e, self.integers)
        if None not in index:
            return self.context.subscript(e.buffer, tuple(a for a in index if a is not None))
        terms = []
        for i, a, stride in zip(e.index, index, self.context.place(e.buffer).strides, strict=True):
            text = self.printer.text(i)
            if a is not None and a.is_constant:
                text = str(a.const)
            if text != "0":
                wide = text if text.isdigit() else f"(long)({text})"
                terms.append(wide if stride == 1 else f"{wide}*{stride}")
        return f"{e.buffer}[{' + '.join(terms) or '0'}]"


def _context(step: Sequential, names: Names) -> Context:
    hom, nothing = MdHom((), ScalarFunction(()), ()), OutputView((), ())
    stand_in = MdhProgram("", step.params, step.buffers, InputView(()), hom, nothing, step.functions)
    return Context(stand_in, names)


def raw_strides(b: Buffer) -> tuple[int | str, ...]:
    """Elements between neighbours in each dimension: a number, or C text over parameters."""
    return _context(Sequential((), (), (b,)), Names(set())).raw_place(b.name).strides


def known_index(e: Load, names: Iterable[str]) -> tuple[Affine | None, ...]:
    """Per dimension the index as an affine value over ``names``, or None where it depends on data."""
    found = []
    for i in e.index:
        a = as_affine(i)
        found.append(a if a is not None and a.names <= set(names) else None)
    return tuple(found)
