"""The innermost part of a nest as an instruction of ``lowering.instructions``.

before   a ``Leaf``, and the loops around it written, each with the step that the instruction takes
after    the instruction's statements, with C texts for the registers of this lane

    acc[i_r][j_r] += A_tile[i_t + i_r + k_r*132] * B_tile[k_r*128 + j_t + j_r];        a multiply-add
    asm("mma.sync...." : "+d"(acc[j_r]), "+d"(acc[j_r + 1]) : "d"(A_tile[..]), "d"(B_tile[..]));

An operand's element is found by its own place in the box of the instruction: what the thread adds to an index
as owner of results is taken back first.
"""

from __future__ import annotations

from emit.gpu_joined_text import JoinedText
from lowering.instructions import Fragment, Leaf, Place
from lowering.loops import Loop, size_name
from mdh_core.expr import Operand


class LeafText(JoinedText):
    """Writes an instruction."""

    own: dict[str, list[str]]
    variables: dict[Loop, str]
    acc: list[str]

    def _set_indices(self) -> None:
        """What the text of each dimension is from here on."""
        raise NotImplementedError

    @property
    def _loose(self) -> list[str]:
        """Concatenated dimensions whose index may be outside."""
        raise NotImplementedError

    def write_leaf(self, leaf: Leaf, cells: tuple[Loop, ...]) -> None:
        """The statements; ``cells``: the loops of the local tile."""
        row, (m, n, k) = leaf.instruction, leaf.dims
        thread, names = self.kernels.target.thread, {}
        if row.helper:
            names["name"] = self.kernels.helper_lines(row.name, row.helper)
        lane = f"{thread} % {row.lanes}"
        names["lane"] = f"({lane})"
        for register, places in enumerate(row.c):
            names[f"c{register}"] = self._cell(leaf, places, cells)
        for word, fragment, access, dims in (("a", row.a, 0, (m, k)), ("b", row.b, 1, (k, n))):
            for register, text in enumerate(self._elements(leaf, fragment, access, dims, lane)):
                names[f"{word}{register}"] = text
        self.out.add(*(line.format(**names) for line in row.text))

    def write_single(self, leaf: Leaf, cell: str) -> None:
        """The statements for the current point alone."""
        row = leaf.instruction
        names = {"c0": cell, "lane": "0"}
        if row.helper:
            names["name"] = self.kernels.helper_lines(row.name, row.helper)
        for word, access in zip("ab", leaf.accesses, strict=True):
            t = self.program.buffer(self.program.inp.accesses[access].buffer).type
            names[f"{word}0"] = self.context.scalar(Operand(access, t))
        self.out.add(*(line.format(**names) for line in row.text))

    def _cell(self, leaf: Leaf, places: tuple[Place, Place], cells: tuple[Loop, ...]) -> str:
        """The accumulator that is a register of the instruction."""
        text = self.acc[0]
        for loop in cells:
            index = self.variables[loop]
            if leaf.step(loop) > 1:
                number = places[leaf.dims.index(loop.dim)].at(0) // loop.size
                index += f" + {number}" if number else ""
            text += f"[{index}]"
        return text

    def _elements(
        self, leaf: Leaf, fragment: Fragment, operand: int, dims: tuple[str, str], lane: str
    ) -> list[str]:
        """The registers of an operand as C texts."""
        access, context = leaf.accesses[operand], self.context
        t = self.program.buffer(self.program.inp.accesses[access].buffer).type
        own = self.own
        at, local, innermost = dict(context.at), dict(context.local), context.innermost
        found = []
        for places in fragment:
            self.own = {d: list(terms) for d, terms in own.items()}
            for d, place in zip(dims, places, strict=True):
                if d and (more := self._moved(leaf, d, place, lane)):
                    self.own[d].append(more)
                    context.innermost = {x: v for x, v in context.innermost.items() if x != d}
            self._set_indices()
            for d in self._loose:
                text, size = context.at[d], size_name(d)
                context.at[d] = f"({text} < {size} ? {text} : {size} - 1)"
            found.append(context.scalar(Operand(access, t)))
            context.innermost = innermost
        self.own, context.at, context.local = own, at, local
        return found

    @staticmethod
    def _moved(leaf: Leaf, d: str, place: Place, lane: str) -> str:
        """What is added to the thread's index in a dimension for an element that may be another thread's."""
        text = _place(place, lane)
        if leaf.instruction.lanes == 1 or d == leaf.dims[2]:
            return text
        owned = leaf.instruction.c[0][leaf.dims.index(d)]
        if owned == place:
            return ""
        taken = _place(owned, lane)
        return f"{text or '0'} - {taken}" if taken else text


def _place(place: Place, lane: str) -> str:
    """``lane/4 % 8*2 + 1`` as C text; empty: 0."""
    text = ""
    if place.count > 1:
        text = f"({lane})/{place.divisor} % {place.count}" if place.divisor > 1 else f"{lane} % {place.count}"
        text = f"({text})*{place.scale}" if place.scale > 1 else f"({text})"
    if place.offset:
        text += f" + {place.offset}" if text else str(place.offset)
    return text
