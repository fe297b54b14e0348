"""A cell whose points several threads of a block share: how their parts become one.

before   every thread has its part of the cell, in registers
after    the thread whose number among those that share is 0 has the whole cell

    lanes of a warp    acc += __shfl_down_sync(0xffffffffu, acc, step, 32);  step = 16, 8, .., 1
    warps              each warp's part in shared memory, a barrier, and the first warp as above
    where that is impossible (OpenCL; records; numbers that are no powers of two; threads that are no
    neighbours; parts that may be missing): all parts in shared memory, and a tree with a barrier per step

Which thread combines what belongs to the configuration: the result has the same bits in every run.  That it
is the right one is shown against the interpreter, with every barrier and every lane's mask checked.
"""

from __future__ import annotations

import math

from emit.c_text import c_type
from emit.gpu_copies_text import CopiesText
from emit.kernel_text import repeats_right
from mdh_core.expr import ScalarType


class JoinedText(CopiesText):
    """Writes how threads combine what they have of a cell."""

    flags: str  # what says whether a thread has a part at all; empty: each has
    reduced: list[str]
    joint: list[str]
    joint_flags: str

    @property
    def _several(self) -> int:
        """Threads that share a cell."""
        return math.prod(x.count or 1 for x in self.gpu.threads if x.dim in self.reduced)

    @property
    def _others(self) -> int:
        return math.prod(x.count or 1 for x in self.gpu.threads if x.dim not in self.reduced)

    @property
    def by_shuffles(self) -> bool:
        """Whether lanes of whole warps, neighbours that are a power of two, have parts of 4 or 8 bytes."""
        several, warp = self._several, self.kernels.target.warp
        return (
            warp > 1
            and self.gpu.threads[-1].dim in self.reduced
            and several & (several - 1) == 0
            and self.gpu.unit % warp == 0
            and not self.flags
            and all(isinstance(t, ScalarType) and t.size in (4, 8) for t in self.types)
        )

    def declare_joint(self) -> None:
        """The memory of the block through which parts are combined."""
        unit, share = self.gpu.unit, self.kernels.share
        if self.by_shuffles:
            warp = self.kernels.target.warp
            self.joint = []
            if self._several > warp:
                self.joint = [share(c_type(t), "acc_shared", unit // warp) for t in self.types]
            return
        self.joint = [share(c_type(t), "acc_shared", unit) for t in self.types]
        self.joint_flags = share("_Bool", "have_shared", unit) if self.flags else ""

    def joined(self, cells: list[str], flag: str) -> tuple[list[str], str, str]:
        """Combine the parts of a cell; texts of where it is then, of its flag, and of who has it."""
        out, several, others = self.out, self._several, self._others
        thread = self.kernels.target.thread
        fastest = self.gpu.threads[-1].dim in self.reduced
        number = self.context.names.new("number")
        digit = thread
        if others > 1:
            digit = f"{thread} % {several}" if fastest else f"{thread} / {others}"
        out.add(f"const int {number} = {digit};")
        if self.by_shuffles:
            self._shuffled(cells, number)
            return cells, "", f"{number} == 0"
        self._in_a_tree(cells, flag, number, 1 if fastest else others)
        joined = [f"{s}[{thread}]" for s in self.joint]
        return joined, f"{self.joint_flags}[{thread}]" if flag else "", f"{number} == 0"

    def _shuffled(self, cells: list[str], number: str) -> None:
        out, target, several = self.out, self.kernels.target, self._several
        self._over_lanes(cells, min(several, target.warp))
        if several <= target.warp:
            return
        warps = several // target.warp
        self.barrier("before", "put")
        with out.block(f"if ({number} % {target.warp} == 0)"):
            for shared, cell in zip(self.joint, cells, strict=True):
                out.add(f"{shared}[{target.thread} / {target.warp}] = {cell};")
        self.barrier("before", "take")
        with out.block(f"if ({number} < {target.warp})"):
            first = f"{target.thread} / {target.warp} + {number} % {warps}"
            for shared, cell in zip(self.joint, cells, strict=True):
                out.add(f"{cell} = {shared}[{first}];")
            self._over_lanes(cells, warps)

    def _over_lanes(self, cells: list[str], width: int) -> None:
        """The first of ``width`` neighbouring lanes gets what all have; the others keep what is of no use."""
        out, step = self.out, self.context.names.new("step")
        out.add("#pragma unroll")
        with out.block(f"for (int {step} = {width // 2}; {step} > 0; {step} /= 2)"):
            shuffle = self.kernels.target.shuffle
            others = [shuffle.format(value=cell, step=step, width=width) for cell in cells]
            self.accumulate(cells, self._named(list(others)))

    def _in_a_tree(self, cells: list[str], flag: str, number: str, stride: int) -> None:
        out, thread, several = self.out, self.kernels.target.thread, self._several
        self.barrier("before", "put")
        for shared, cell in zip(self.joint, cells, strict=True):
            out.add(f"{shared}[{thread}] = {cell};")
        if flag:
            out.add(f"{self.joint_flags}[{thread}] = {flag};")
        self.barrier("before", "step")
        step, most = self.context.names.new("step"), 1
        while 2 * most < several:
            most *= 2
        with out.block(f"for (int {step} = {most}; {step} > 0; {step} /= 2)"):
            self.barrier("before", "combine")
            even = several == 2 * most
            test = f"{number} < {step}" + ("" if even else f" && {number} + {step} < {several}")
            with out.block(f"if ({test})"):
                other = f"{thread} + {step}" + (f"*{stride}" if stride > 1 else "")
                mine = [f"{s}[{thread}]" for s in self.joint]
                theirs = [f"{s}[{other}]" for s in self.joint]
                if flag:
                    with out.block(f"if ({self.joint_flags}[{other}])"):
                        self.add_or_set(f"{self.joint_flags}[{thread}]", mine, theirs)
                else:
                    assert self.function is not None
                    named = len(theirs) > 1 or repeats_right(self.function)
                    self.accumulate(mine, self._named(list(theirs)) if named else theirs)
            self.barrier("end", "step")
        self.barrier("before", "take")
