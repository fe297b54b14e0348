"""Running values of a scan in vector registers: prefixes of each vector first, then what came before it.

    x      = a b c d                      one vector of values
    x     += 0 a b c                      shifted up by one lane, then by two, four, …
    x     += 0 0 a+ab …                   now x holds its own prefixes, and its last lane the total
    out    = run + x,  run += total

Four vectors are worked on side by side; only one addition per four vectors waits for the one before.  The
order of additions differs from the loop's, so this is for operators that may be reordered, and whose lanes
can be computed together (``NotVector`` otherwise).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from emit.kernel_text import Context, Lines
from emit.vector_printer import NotVector, VectorPrinter, Vectors, vector_store
from mdh_core.expr import ScalarType, Type, straight_line
from mdh_core.ir import MdhProgram, Store

if TYPE_CHECKING:
    from collections.abc import Callable

TOGETHER = 4
SIZES = (4, 8)  # bytes of an element for which there are macros


def fill_macros() -> list[str]:
    """``MDH_FILL(V, E, v, n)``: a variable whose lanes are set one by one; ``MDH_FILLED(U, v)``: the vector.

    Lanes of a vector's own for gcc 12, which puts elements of an array into memory and waits for all of them
    when they are loaded as a vector (2.7 times the time of a bilateral filter).  Elements of an array for
    clang 14, which stores and loads the whole vector for each lane of it (30 times the time of such a map).
    """
    return [
        "#ifndef MDH_FILL /* lanes that are set one by one */",
        "#ifdef __clang__",
        "#define MDH_FILL(V, E, v, n) E v[n]",
        "#define MDH_FILLED(U, v) (*(const U *)(v))",
        "#else",
        "#define MDH_FILL(V, E, v, n) V v = {0}",
        "#define MDH_FILLED(U, v) (v)",
        "#endif",
        "#endif",
    ]


def lanes_macro(size: int) -> list[str]:
    """``MDH_LANES_4(a, b, 0, 16, ...)``: a vector of lanes of two vectors that fill a register."""
    name = f"MDH_LANES_{size}"
    integer = "int" if size == 4 else "long long"
    return [
        f"#ifndef {name} /* chosen lanes of two vectors */",
        "#ifdef __clang__",
        f"#define {name}(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)",
        "#else",
        f"typedef {integer} mdh_lanes_{size} __attribute__((vector_size(MDH_VECTOR_BYTES)));",
        f"#define {name}(a, b, ...) __builtin_shuffle(a, b, (mdh_lanes_{size}){{__VA_ARGS__}})",
        "#endif",
        "#endif",
    ]


def shift_macros(size: int) -> list[str]:
    """``MDH_UP_4_2(a, b)``: lanes of b two places up, the first two from a; ``MDH_LAST_4``: the last only."""
    name = f"MDH_LANES_{size}"
    lines = [*lanes_macro(size), f"#ifndef MDH_LAST_{size} /* lanes some places up; the last one in all */"]
    for n, width in enumerate((64, 32, 16)):
        lanes = width // size
        lines.append(f"#{'elif' if n else 'if'} MDH_VECTOR_BYTES == {width}")
        for by in _steps(size):
            chosen = [0 if k < by else lanes + k - by for k in range(lanes)]
            text = f"{name}(a, b, {', '.join(map(str, chosen))})" if by < lanes else "(b)"
            lines.append(f"#define MDH_UP_{size}_{by}(a, b) {text}")
        lines.append(f"#define MDH_LAST_{size}(a) {name}(a, a, {', '.join([str(lanes - 1)] * lanes)})")
    return [*lines, "#endif", "#endif"]


def _steps(size: int) -> list[int]:
    return [by for by in (1, 2, 4, 8) if by < 64 // size]


def in_vectors(program: MdhProgram, dim: str) -> bool:
    """Whether the program's form allows it; loads and stores are looked at when they are written."""
    f, scalar = program.hom.function, program.hom.scalar
    types = program.component_types
    return (
        f is not None
        and f.commutative
        and f.identity is not None
        and (f.exact or program.fp != "exact")
        and len(types) == 1
        and isinstance(types[0], ScalarType)
        and types[0].kind != "bool"
        and types[0].size in SIZES
        and straight_line(scalar.body)
        and not scalar.body
        and not any(a.conditional for a in program.inp.accesses)
        and not program.hom.domain
        and not any(d.name != dim for d in program.hom.dims_of("pw"))
    )


class PrefixText:
    """Writes the whole vectors of one sequence; the scalar loop behind it takes the rest.

    masks   of outputs whose vectors go past the caches at aligned places (see ``emit.vectors_text``)
    ahead   points from here to those whose operands are fetched meanwhile; 0: none are
    """

    def __init__(
        self,
        program: MdhProgram,
        dim: str,
        context: Context,
        out: Lines,
        masks: Mapping[str, str],
        ahead: int = 0,
    ) -> None:
        self.program, self.dim, self.context, self.out = program, dim, context, out
        self.masks, self.ahead = masks, ahead
        self.vectors = Vectors(dim, *_fresh(context))

    def write(
        self, carry: str, variable: str, end: str, stores: Sequence[Store],
        guarded: Callable[[Store], bool],
    ) -> bool:  # fmt: skip
        """From ``variable`` on, as long as whole groups of vectors fit; False where lanes cannot go together.

        ``guarded``: does a store take place under a condition?
        """
        rows, at = len(self.out.rows), self.context.at[self.dim]
        try:
            if any(map(guarded, stores)):
                raise NotVector
            with self.out.block(""):
                self.out.rows[-1] = "  " * (self.out.indent - 1) + "{"
                top = len(self.out.rows)
                self._write(carry, variable, end, stores)
                size = self.program.component_types[0].size
                names = f"enum {{ {self.vectors.lanes} = MDH_VECTOR_BYTES / {size} }};"
                pad = "  " * self.out.indent
                self.out.rows[top:top] = [pad + x for x in (names, *self.vectors.typedefs())]
        except NotVector:
            del self.out.rows[rows:]
            return False
        finally:
            self.context.at[self.dim] = at
        return True

    def _write(self, carry: str, variable: str, end: str, stores: Sequence[Store]) -> None:
        t, names, out = self.program.component_types[0], self.context.names, self.out
        of, lanes = self.vectors.type(t), self.vectors.lanes
        f = self.program.hom.function
        assert f is not None and f.identity is not None
        neutral, run = names.new("neutral"), names.new("run")
        part, total, q = names.new("part"), names.new("total"), names.new("v")
        printer = VectorPrinter(self.context, self.vectors)
        out.add(f"const {of} {neutral} = {printer.vector(f.identity[0])};")
        out.add(f"{of} {run} = ({carry} - ({of}){{0}});")
        step = f"{TOGETHER}*{lanes}"
        with out.block(f"for (; {variable} + {step} <= {end}; {variable} += {step})"):
            out.add(f"{of} {part}[{TOGETHER}], {total}[{TOGETHER}];")
            with self._each(q):
                self.context.at[self.dim] = f"{variable} + {q}*{lanes}"
                value = printer.vector(self.program.hom.scalar.results[0])
                self._fetch()
                x, up = names.new("x"), names.new("up")
                out.add(f"{of} {x} = {value};", f"{of} {up};")
                for by in _steps(t.size):
                    lines = f"{up} = MDH_UP_{t.size}_{by}({neutral}, {x}); {x} = {self._both(up, x)};"
                    out.add(f"if ({lanes} > {by}) {{ {lines} }}")
                out.add(f"{part}[{q}] = {x};", f"{total}[{q}] = MDH_LAST_{t.size}({x});")
            for k in range(1, TOGETHER):
                out.add(f"{total}[{k}] = {self._both(f'{total}[{k - 1}]', f'{total}[{k}]')};")
            with self._each(q):
                before, result = names.new("before"), names.new("r")
                earlier = self._both(run, f"{total}[{q} ? {q} - 1 : 0]")
                out.add(f"const {of} {before} = {q} ? {earlier} : {run};")
                out.add(f"const {of} {result} = {self._both(before, f'{part}[{q}]')};")
                self._store(stores, result)
            out.add(f"{run} = {self._both(run, f'{total}[{TOGETHER - 1}]')};")
        out.add(f"{carry} = {run}[0];")

    def _fetch(self) -> None:
        """Bring operands of later points near: past the end it does no harm."""
        if not self.ahead:
            return
        here = self.context.at[self.dim]
        self.context.at[self.dim] = f"{here} + {self.ahead}"
        accesses = self.program.inp.accesses
        used = [a for a in accesses if any(x.coefficient(self.dim) for x in a.index)]
        places = dict.fromkeys(self.context.subscript(a.buffer, a.index) for a in used)
        self.out.add(*(f"__builtin_prefetch(&{place});" for place in places))
        self.context.at[self.dim] = here

    def _each(self, q: str) -> ExitStack:
        stack = ExitStack()
        self.out.add(f"#pragma GCC unroll {TOGETHER}")
        stack.enter_context(self.out.block(f"for (long {q} = 0; {q} < {TOGETHER}; {q}++)"))
        return stack

    def _both(self, left: str, right: str) -> str:
        """The operator in all lanes."""
        f = self.program.hom.function
        assert f is not None
        variables = {"l0": left, "r0": right}
        printer = VectorPrinter(self.context, self.vectors, variables=variables, wraps=True)
        return printer.vector(f.values[0])

    def _store(self, stores: Sequence[Store], result: str) -> None:
        printer = VectorPrinter(self.context, self.vectors, results={0: result})
        texts = []
        for s in stores:
            t: Type = self.program.buffer(s.buffer).type
            if self.context.lane_stride(s.buffer, s.index, self.dim) != 1:
                raise NotVector
            texts.append((s, t, printer.vector(s.value)))
        if len(texts) > 1:  # every value before the first write
            for k, (s, t, text) in enumerate(texts):
                name = self.context.names.new("value")
                self.out.add(f"const {self.vectors.type(t)} {name} = {text};")
                texts[k] = (s, t, name)
        for s, t, text in texts:
            target = self.context.subscript(s.buffer, s.index)
            self.out.add(vector_store(self.vectors.unaligned(t), target, text, self.masks.get(s.buffer)))


def _fresh(context: Context) -> tuple[str, str]:
    lanes = context.names.new("lanes")
    return lanes, lanes.replace("lanes", "v")
