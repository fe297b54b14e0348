"""What all kernels of a nest share: where cells are, and which cell is a thread's own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from emit.c_text import affine_text, c_type
from emit.gpu_kernels import Kernels
from emit.kernel_text import Context, Lines, Place, product_text
from lowering.gpu import SharedTile
from lowering.loops import size_name
from mdh_core.expr import Affine, Type
from mdh_core.ir import Buffer

INT_MAX = (1 << 31) - 1
CELL_UNIT = 128  # threads of a block where each has one cell


@dataclass(frozen=True, slots=True)
class Copy:
    """A buffer in the memory of the block.

    shifts   what is added to an index inside of the block to find it in the copy, per coordinate
    swizzle  the function that says where a cell is; empty: it is where its number says
    """

    name: str
    tile: SharedTile
    shifts: tuple[int, ...]
    swizzle: str = ""

    def cell(self, number: str, neighbour: str = "") -> str:
        """``A_tile[A_place(k*128 + i_t) + i_r]``; the neighbour is one that the swizzle keeps together."""
        place = f"{self.swizzle}({number})" if self.swizzle else number
        return f"{self.name}[{place} + {neighbour}]" if neighbour else f"{self.name}[{place}]"


@dataclass
class GpuContext(Context):
    """``local``: per dimension the part of an index that is inside of the block; ``copies``: by buffer.

    ``innermost``: per dimension the variable of the local tile that counts neighbours, and their number;
    ``outer``: ``local`` without that.
    ``registers``: by buffer, what a thread has of a copy between reading and writing it; ``narrow``: whether
    indices of dimensions are ``int`` in the kernel.  What is multiplied with a stride is ``long`` even then.
    """

    local: dict[str, str] = field(default_factory=dict)
    copies: dict[str, Copy] = field(default_factory=dict)
    innermost: dict[str, tuple[str, int]] = field(default_factory=dict)
    outer: dict[str, str] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    narrow: bool = False

    def __post_init__(self) -> None:
        self.rounds = False  # compilers for a GPU have an option for it: see ``GpuPart.rounds``

    @property
    def index_type(self) -> str:
        return "int" if self.narrow else "long"

    def raw_place(self, buffer: str) -> Place:
        place = super().raw_place(buffer)
        if not self.narrow or _is_small(self.program.buffer(buffer)):
            return place
        # a number stands first in a product, and the index before it
        wide = (s if s in (0, 1) else re.sub(r"^(\d+)(?=$|\*)", r"\1L", str(s)) for s in place.strides)
        return replace(place, strides=tuple(wide))

    def _integer(self, text: str, t: Type) -> str:
        own = any(p.name == text for p in self.program.params)  # those are `long`
        if self.narrow and c_type(t) == "long" and not own:
            return f"(long){text}" if text.replace("_", "a").isalnum() else f"(long)({text})"
        return super()._integer(text, t)

    def subscript(self, buffer: str, index: tuple[Affine, ...]) -> str:
        if buffer not in self.copies:
            return super().subscript(buffer, index)
        copy = self.copies[buffer]
        dims = {d.name for d in self.program.hom.dims}
        terms, last = [], ""
        for a, stride, shift in zip(index, copy.tile.strides, copy.shifts, strict=True):
            inside = Affine(tuple((n, c) for n, c in a.terms if n in dims), a.const + shift)
            local = self.local
            if stride == 1 and (found := self._neighbour(copy, inside)):
                last, local = found, self.outer
            text = affine_text(inside, local, atom=stride != 1)
            if text != "0":
                terms.append(text if stride == 1 else f"{text}*{stride}")
        return copy.cell(" + ".join(terms) or "0", last)

    def _neighbour(self, copy: Copy, inside: Affine) -> str:
        """The innermost term of the last coordinate, where neighbours in it stay together under a swizzle.

        They do if their number fits a run that it keeps together, and everything else is a multiple.
        """
        if copy.tile.swizzle is None or len(inside.names) != 1 or inside.terms[0][1] != 1:
            return ""
        text, count = self.innermost.get(inside.terms[0][0], ("", 0))
        others = [s for s in copy.tile.strides if s != 1]
        fits = count > 1 and (1 << copy.tile.swizzle.base) % count == 0
        return text if fits and all(x % count == 0 for x in (inside.const, *others)) else ""


def _is_small(b: Buffer) -> bool:
    """Whether the numbers of all elements are known to be ``int``."""
    if b.strides is not None or any(e is None or not e.is_constant for e in b.extents):
        return False
    return math.prod(e.const for e in b.extents if e is not None) <= INT_MAX


@contextmanager
def cell_of_thread(
    out: Lines, kernels: Kernels, context: Context, dims: Sequence[str], unit: int
) -> Iterator[None]:
    """Inside, the thread has one position of the dimensions, and their indices are known."""
    if not dims:
        yield
        return
    names, target = context.names, kernels.target
    cell = names.new("cell")
    total = product_text([size_name(d) for d in dims])
    out.add(f"long {cell} = (long){target.block}*{unit} + {target.thread};")
    with out.block(f"if ({cell} < {total})"):
        digits(out, context, dims, cell)
        yield


def digits(out: Lines, context: Context, dims: Sequence[str], cell: str) -> None:
    """The indices of a position that is counted with the last dimension fastest; ``cell`` is used up."""
    for k, d in reversed(list(enumerate(dims))):
        name = context.names.new(d)
        out.add(f"const long {name} = {cell if k == 0 else f'{cell} % {size_name(d)}'};")
        if k:
            out.add(f"{cell} /= {size_name(d)};")
        context.at[d] = name
