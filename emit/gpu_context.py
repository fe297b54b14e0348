"""What all kernels of a nest share: where cells are, and which cell is a thread's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from emit.c_text import affine_text
from emit.gpu_kernels import Kernels
from emit.kernel_text import Context, Lines, product_text
from lowering.gpu import SharedTile
from lowering.loops import size_name
from mdh_core.expr import Affine

CELL_UNIT = 128  # threads of a block where each has one cell


@dataclass
class GpuContext(Context):
    """``local``: per dimension the part of an index that is inside of the block; ``copies``: by buffer."""

    local: dict[str, str] = field(default_factory=dict)
    copies: dict[str, tuple[str, SharedTile, tuple[int, ...]]] = field(default_factory=dict)

    def subscript(self, buffer: str, index: tuple[Affine, ...]) -> str:
        if buffer not in self.copies:
            return super().subscript(buffer, index)
        name, tile, shifts = self.copies[buffer]
        dims = {d.name for d in self.program.hom.dims}
        terms = []
        for a, stride, shift in zip(index, tile.strides, shifts, strict=True):
            inside = Affine(tuple((n, c) for n, c in a.terms if n in dims), a.const + shift)
            text = affine_text(inside, self.local, atom=stride != 1)
            if text != "0":
                terms.append(text if stride == 1 else f"{text}*{stride}")
        return f"{name}[{' + '.join(terms) or '0'}]"


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
