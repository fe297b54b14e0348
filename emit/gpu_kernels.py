"""The kernels of a nest for a GPU: their functions, and the launches in the host function.

A kernel's parameters are whatever known names its text mentions: sizes, scalars of the nest, iterators of
host loops, buffers.  Its grid and its blocks have one dimension; what is parallel in several is counted
by division, so that there may be as many as there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from emit.kernel_text import Lines, Names, without_dead_constants
from emit.targets import Target, spelled
from mdh_core.ir import Buffer, Size

_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")  # fields are no names


def words(rows: Iterable[str]) -> set[str]:
    """The identifiers in some lines."""
    return {w for row in rows for w in _WORD.findall(row)}


@dataclass(frozen=True, slots=True)
class Known:
    """A name of the host function that kernels may mention.

    type    in C; of the elements, if it is a ``buffer`` in global memory
    value   what it always is; then it is a constant in each kernel instead of a parameter
    """

    name: str
    type: str
    buffer: bool = False
    value: str = ""


@dataclass(frozen=True, slots=True)
class Needed:
    """Temporaries of kernels that no program has, and the sizes in their extents."""

    buffers: tuple[Buffer, ...] = ()
    sizes: tuple[tuple[str, Size], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A kernel as text, and what it is called with, in order."""

    name: str
    unit: int
    rows: tuple[str, ...]
    parameters: tuple[Known, ...]
    written: frozenset[str]
    resident: int = 1
    helpers: tuple[str, ...] = ()


@dataclass
class Kernels:
    """Collects the kernels of one nest; ``host`` are the lines of the host function behind its guards.

    launch   the lines that run a kernel with a number of blocks (C text, at least one)
    """

    target: Target
    name: str
    names: Names
    known: dict[str, Known]
    records: tuple[str, ...]
    launch: Callable[[GpuKernel, str], list[str]]
    functions: tuple[str, ...] = ()
    host: Lines = field(default_factory=Lines)
    done: list[GpuKernel] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)  # sizes of dimensions that lowering made
    noted: set[str] = field(default_factory=set)
    # of the kernel that is being written: declarations in shared memory, functions before it
    shared: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)

    @contextmanager
    def kernel(
        self,
        unit: int,
        blocks: str,
        written: Iterable[str],
        narrow: Mapping[str, str] | None = None,
        resident: int = 1,
    ) -> Iterator[Lines]:
        """A kernel whose body is written inside of the ``with``; the launch stands where it is left.

        blocks    C text of how many there are; at least one
        written   buffers that it writes
        narrow    by name, under which other name the kernel gets it as an ``int``
        resident  blocks that a multiprocessor should have room for
        """
        out, self.shared, taken = Lines(), [], set(self.names.taken)
        self.helpers = []
        yield out
        self.names.taken = taken | self.noted
        out.rows[:0] = self.shared
        out.rows = without_dead_constants(out.rows)
        if narrow:
            used = words(out.rows)
            known = {n: new for n, new in narrow.items() if n in used and not self.known[n].value}
            out.rows = [_WORD.sub(lambda m: known.get(m[0], m[0]), row) for row in out.rows]
            for name, new in known.items():
                self.known[new] = Known(new, "int")
                self.host.add(f"const int {new} = (int){name};")
        used = words(out.rows)
        constants = [f"  const {k.type} {k.name} = {k.value};" for k in self.known.values()
                     if k.value and k.name in used]  # fmt: skip
        rows = spelled([*constants, *out.rows], self.target, self.records, self.functions)
        parameters = [k for k in self.known.values() if k.name in used and not k.value]
        parameters.sort(key=lambda k: k.buffer)
        name, helpers = f"{self.name}_{len(self.done)}", tuple(self.helpers)
        found = GpuKernel(name, unit, tuple(rows), tuple(parameters), frozenset(written), resident, helpers)
        self.done.append(found)
        self.host.add(*self.launch(found, blocks))

    def share(self, t: str, wish: str, count: int, aligned: bool = False) -> str:
        """An array in the memory of the block, declared where the kernel begins; its name."""
        name, align = self.names.new(wish), self.target.align if aligned else ""
        self.shared.append("  " + self.target.shared.format(type=t, name=name, count=count, aligned=align))
        return name

    def helper(self, wish: str, parameter: str, value: str) -> str:
        """A function of an ``int`` that this kernel calls; its name."""
        name = f"{self.name}_{len(self.done)}_{wish}"
        self.helpers.append(f"{self.target.function}int {name}(int {parameter}) {{ return {value}; }}")
        return name

    def helper_lines(self, wish: str, lines: Iterable[str]) -> str:
        """A function of its own for this kernel, called ``{name}`` in its lines; its name."""
        name = f"{self.name}_{len(self.done)}_{wish}"
        rows = [line.format(name=name, function=self.target.function) for line in lines]
        self.helpers += [row for row in rows if row not in self.helpers]
        return name

    def note(self, name: str, text: str) -> str:
        """A constant of the host function that kernels may mention, too."""
        name = self.names.new(name)
        self.noted.add(name)
        self.host.add(f"const long {name} = {text};")
        self.known[name] = Known(name, "long")
        return name

    def declaration(self, kernel: GpuKernel) -> list[str]:
        """The lines of a kernel.

        What a nest touches of an array is all that the device has: where a kernel cannot be given
        a pointer to what would be the array's first element, it gets the number of the first one there.
        """
        parts, begins = [], []
        for k in kernel.parameters:
            if not k.buffer:
                parts.append(f"const {k.type} {k.name}")
                continue
            t = (k.type if k.name in kernel.written else f"const {k.type}").replace("_Bool", self.target.byte)
            if self.target.biased:
                parts.append(self.target.pointer.format(type=t, name=k.name))
                continue
            memory = self.target.pointer.format(type=t, name=f"{k.name}_memory")
            parts += [memory, f"const long {k.name}_first"]
            pointer = self.target.pointer.format(type=t, name=f"const {k.name}")
            begins.append(f"  {pointer} = {k.name}_memory - {k.name}_first;")
        head = self.target.kernel.format(unit=kernel.unit, resident=kernel.resident)
        head += f"{kernel.name}({', '.join(parts)})"
        return [*kernel.helpers, *head.split("\n"), "{", *begins, *kernel.rows, "}"]
