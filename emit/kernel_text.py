"""What all loop nests of a kernel share: lines, names, index arithmetic, scalar code, vector code.

``Context`` knows where each buffer currently lives (the user's array or a packed copy) and the text of
each dimension's index at the place where code is being written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from emit.c_text import Printer, affine_text, c_type
from mdh_core.combine import CombineFunction
from mdh_core.expr import (
    INT64,
    Affine,
    Binary,
    Const,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    Type,
    Var,
    as_affine,
    walk,
)
from mdh_core.ir import Access, MdhProgram
from mdh_core.rounding import rounds_products

_WRAPPED = re.compile(r"([^=]* [-+*/&|^]?= )\((.*)\);")


def _plain(text: str) -> str:
    """An assignment without parentheses around all of its value.

    >>> _plain("r += ((a + b) * (c + d));"), _plain("r = (a + b) * (c + d);"), _plain("r = ({ f(); });")
    ('r += (a + b) * (c + d);', 'r = (a + b) * (c + d);', 'r = ({ f(); });')
    """
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None or wrapped[2].startswith("{"):
        return text
    depth = 0
    for c in wrapped[2]:
        depth += (c == "(") - (c == ")")
        if depth < 0 or (c == "," and not depth):
            return text
    return f"{wrapped[1]}{wrapped[2]};"


class Lines:
    """Indented text."""

    def __init__(self, indent: int = 1) -> None:
        self.rows: list[str] = []
        self.indent = indent

    def add(self, *texts: str) -> None:
        for text in texts:
            self.rows.append(text if text.startswith("#") else "  " * self.indent + _plain(text))

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        self.add(head + " {")
        self.indent += 1
        try:
            yield
        finally:  # who finds that there is no vector form deletes the rows and goes on
            self.indent -= 1
        self.add(tail)

    def place(self, rows: Iterable[str], deeper: int) -> None:
        """Rows that are indented already, so many levels further in."""
        self.rows += (row if row.startswith("#") else "  " * deeper + row for row in rows)

    def middle(self, text: str) -> None:
        """A line such as ``} else {`` one level further out."""
        self.indent -= 1
        self.add(text)
        self.indent += 1

    @contextmanager
    def alone(self, team: bool = True) -> Iterator[None]:
        """What one thread of a team does while the others wait; without a team, what is done."""
        if not team:
            yield
            return
        with self.block("if (MDH_THREAD == 0)"):
            at = len(self.rows)
            yield
            if any("MDH_STORE(" in row for row in self.rows[at:]):
                self.add("MDH_STORED();")  # not every barrier orders them
        self.add("#pragma omp barrier")


class Names:
    """Names of the kernel's own variables; never one that the program uses."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def new(self, wish: str) -> str:
        name, k = wish, 2
        while name in self.taken:
            name, k = f"{wish}_{k}", k + 1
        self.taken.add(name)
        return name


_CONSTANT = re.compile(r"\s*[\w ]+? (\w+) = [^;]*;")


def without_dead_constants(rows: list[str]) -> list[str]:
    """The lines without variables that nothing else mentions; names are unique within a kernel."""
    while True:
        counts = Counter(word for row in rows for word in re.findall(r"[A-Za-z_]\w*", row))
        kept = [row for row in rows if not ((m := _CONSTANT.fullmatch(row)) and counts[m[1]] == 1)]
        if len(kept) == len(rows):
            return rows
        rows = kept


@dataclass(frozen=True, slots=True)
class Allocation:
    """A temporary on the heap: ``count`` elements of ``type`` (C texts); the kernel declines without it."""

    name: str
    type: str
    count: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A coordinate of a copy that is cut into strips, one for each tile in ``dim``.

    first   text of the index in ``dim`` at which the copy begins
    pitch   elements of the copy per element of ``dim``, from strip to strip
    """

    coordinate: int
    dim: str
    first: str
    pitch: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer's cells are: ``name[linear(index - base)]`` with strides.

    strides: per buffer dimension, an int, or C text where it is known at run time only.
    """

    name: str
    strides: tuple[int | str, ...]
    base: tuple[str, ...] = ()  # texts subtracted from the indices; empty: none
    strip: Strip | None = None


def product_text(factors: list[int | str]) -> int | str:
    """A product as an int if it is one, else as C text."""
    number = 1
    texts = []
    for f in factors:
        if isinstance(f, int):
            number *= f
        else:
            texts.append(f)
    if not texts:
        return number
    return "*".join(([str(number)] if number != 1 else []) + texts)


@dataclass
class Context:
    """The state while a kernel is written."""

    program: MdhProgram
    names: Names
    at: dict[str, str] = field(default_factory=dict)  # dimension -> text of its index
    places: dict[str, Place] = field(default_factory=dict)
    results: dict[int, str] = field(default_factory=dict)  # component -> text
    allocations: list[Allocation] = field(default_factory=list)
    cache: int | None = None  # bytes from which on arrays do not stay in the caches
    team: bool = False  # whether all threads of a region around the host loops run what is written
    repeated: bool = False  # whether it runs in each iteration of a host loop
    coming: tuple[Access, ...] = ()  # what the next part of a host loop reads, see lowering.ahead.read_again
    enough: list[str] = field(default_factory=list)  # when there is something to share, for each loop that is
    # dimension -> of the tile that is being written: which strip is its own, and the strip's first index
    tiles: dict[str, tuple[str, str]] = field(default_factory=dict)
    rounds: bool = field(init=False)  # whether products of the scalar function are not contracted

    def __post_init__(self) -> None:
        self.rounds = rounds_products(self.program)

    # ------------------------------------------------------------------ places

    def raw_place(self, buffer: str) -> Place:
        """The buffer as the caller passed it: dense row-major, or with its own strides."""
        b = self.program.buffer(buffer)
        if b.strides is not None:
            raw = [self._extent(s) for s in b.strides]
            return Place(buffer, tuple(raw))
        strides: list[int | str] = []
        for t in range(b.rank):
            inner = []
            for extent in b.extents[t + 1 :]:
                assert extent is not None, f"{buffer}: inner extents are known"
                inner.append(self._extent(extent))
            strides.append(product_text(inner))
        return Place(buffer, tuple(strides))

    @staticmethod
    def _extent(a: Affine) -> int | str:
        return a.const if a.is_constant else affine_text(a, {}, atom=True)

    def place(self, buffer: str) -> Place:
        if buffer not in self.places:
            self.places[buffer] = self.raw_place(buffer)
        return self.places[buffer]

    def subscript(self, buffer: str, index: tuple[Affine, ...]) -> str:
        """``A[i*K + k]``: the cell at an index, with the dimensions where they are now."""
        place = self.place(buffer)
        constant_part = 0
        texts: list[str] = []
        for t, a in enumerate(index):
            stride = place.strides[t]
            base = place.base[t] if place.base else ""
            if place.strip is not None and place.strip.coordinate == t:
                texts += self._in_strip(place.strip, stride)
                continue
            if isinstance(stride, int):
                constant_part += a.const * stride
                a = Affine(a.terms)
            texts += self._term(a, stride, base)
        if constant_part:
            texts.append(str(constant_part))
        linear = " + ".join(texts).replace("+ -", "- ") or "0"
        return f"{place.name}[{linear}]"

    def _in_strip(self, strip: Strip, stride: int | str) -> list[str]:
        """Where the strip of the current tile begins, and the place in it."""
        own, start = self.tiles.get(strip.dim, (self.at[strip.dim],) * 2)
        return [
            *self._times(own, strip.pitch, strip.first),
            *self._times(self.at[strip.dim], stride, start),
        ]

    def _term(self, a: Affine, stride: int | str, base: str) -> list[str]:
        """One dimension's share of a linear index."""
        return self._times(affine_text(a, self.at), stride, base)

    @staticmethod
    def _times(inner: str, stride: int | str, base: str) -> list[str]:
        """``(inner - base)*stride``, as a list that is empty where this is 0."""
        if base and base != "0":
            if inner == base:
                return []
            # packs start at the tile: i - i_1 with i = i_1 + r is r
            if inner.startswith(base + " + "):
                inner = inner[len(base) + 3 :]
            elif inner == "0":
                inner = f"-({base})"
            else:
                inner = f"{inner} - ({base})" if not base.replace("_", "a").isalnum() else f"{inner} - {base}"
        if inner == "0" or stride == 0:
            return []
        if stride == 1:
            return [inner]
        atom = inner.replace("_", "a").isalnum()
        if atom or ("+" not in inner and "-" not in inner):
            return [f"{inner}*{stride}"]
        return [f"({inner})*{stride}"]

    def lane_stride(self, buffer: str, index: tuple[Affine, ...], dim: str) -> int | None:
        """Elements between neighbours in ``dim``; None if that is known at run time only."""
        place, total = self.place(buffer), 0
        for t, a in enumerate(index):
            c = a.coefficient(dim)
            if not c:
                continue
            stride = place.strides[t]
            if not isinstance(stride, int):
                return None
            total += c * stride
        return total

    # ------------------------------------------------------------------ threads

    def shared_loop(
        self, out: Lines, kind: str, depth: int = 1, enough: str = "", few: int = 0, trips: Sequence[str] = ()
    ) -> None:
        """The directive of ``depth`` loops that threads share, as a region of its own or in the team's.

        kind     static; dynamic: one at a time, as threads get free; "static, 1": one at a time, in turn
        enough   condition under which there is more for them than one thread should do (always, if empty)
        few      otherwise there are no more iterations than that
        trips    texts of the loops' numbers of iterations

        alone    #pragma omp parallel for schedule(static) if (points > 32768)
        a team   #pragma omp for schedule(static, points > 32768 ? (trips + MDH_TEAM - 1)/MDH_TEAM : 32768)
        """
        collapse = f" collapse({depth})" if depth > 1 else ""
        if not self.team:
            guard = f" if ({enough})" if enough else ""
            out.add(f"#pragma omp parallel for{collapse} schedule({kind}){guard}")
            return
        if enough:
            some = f"({'*'.join(trips)} + MDH_TEAM - 1)/MDH_TEAM" if kind == "static" else "1"
            kind = f"{kind.partition(',')[0]}, {enough} ? {some} : {few}"
        out.add(f"#pragma omp for{collapse} schedule({kind})")

    # ------------------------------------------------------------------ scalar code

    def printer(self, wraps: bool = False) -> Printer:
        functions = self.program.functions
        return Printer(self._leaf, functions=functions, index=self._sum, rounds=self.rounds, wraps=wraps)

    def _sum(self, e: Binary) -> str | None:
        """The text of an affine value over indices and parameters, all of them ``long`` here."""
        known = self.at.keys() | {p.name for p in self.program.params}
        for n in walk(e):
            plain = isinstance(n, Const) or (isinstance(n, Binary) and n.op in "+-*")
            if not (plain or (isinstance(n, Var) and n.name in known)) or n.type != INT64:
                return None
        a = as_affine(e)
        if a is None or not a.names:  # a constant keeps the suffix that makes it `long`
            return None
        return affine_text(a, self.at)

    def _leaf(self, e: Expr) -> str:
        match e:
            case Var(name=name, type=t):
                if name in self.at:
                    return self._integer(self.at[name], t)
                if any(p.name == name and isinstance(p.type, ScalarType) and p.type.is_integer
                       for p in self.program.params):  # fmt: skip
                    return self._integer(name, t)
                return name
            case Operand(access=k):
                access = self.program.inp.accesses[k]
                return self.subscript(access.buffer, access.index)
            case Load(buffer=buffer, index=index):
                known = self.known_index(index)
                return self.subscript(buffer, known) if known is not None else self._gathered(buffer, index)
            case Result(component=c):
                return self.results[c]
            case _:
                raise AssertionError(e)

    def known_index(self, index: tuple[Expr, ...]) -> tuple[Affine, ...] | None:
        """Indices that are affine in dimensions and parameters, or None: they are computed from data."""
        known = self.at.keys() | {p.name for p in self.program.params}
        found = [as_affine(e) for e in index]
        affine = tuple(a for a in found if a is not None and a.names <= known)
        return affine if len(affine) == len(index) else None

    def _gathered(self, buffer: str, index: tuple[Expr, ...]) -> str:
        """A cell at computed indices."""
        place, terms = self.place(buffer), []
        for e, stride in zip(index, place.strides, strict=True):
            known = self.known_index((e,))
            if known is not None:
                terms += self._term(known[0], stride, "")
            else:
                text = f"(long){self.scalar(e, 14)}"
                terms.append(text if stride == 1 else f"{text}*{stride}")
        return f"{place.name}[{' + '.join(terms) or '0'}]"

    def _integer(self, text: str, t: Type) -> str:
        """Indices and integer parameters are ``long`` in a kernel."""
        name = c_type(t)
        if name == "long":
            return text if text.replace("_", "a").isalnum() else f"({text})"
        return f"(({name})({text}))" if not text.replace("_", "a").isalnum() else f"({name}){text}"

    def scalar(self, e: Expr, parent: int = 3, wraps: bool = False) -> str:
        """``wraps``: for lanes, too, that the original does not compute."""
        return self.printer(wraps).text(e, parent)

    def combined(self, f: CombineFunction, left: list[str], right: list[str]) -> list[str]:
        """Texts of ``f(left, right)``, one per component."""
        printer = self._operator_printer(left, right)
        return [printer.text(e) for e in f.values]

    def condition(self, e: Expr, left: list[str], right: list[str]) -> str:
        """A condition over the operands of an operator."""
        return self._operator_printer(left, right).text(e)

    def _operator_printer(self, left: list[str], right: list[str]) -> Printer:
        texts = {f"l{c}": t for c, t in enumerate(left)} | {f"r{c}": t for c, t in enumerate(right)}

        def leaf(e: Expr) -> str:
            assert isinstance(e, Var), e
            return atom(texts[e.name])

        return Printer(leaf, functions=self.program.functions, wraps=True)


_ATOM = re.compile(r"\w+(\[[^][]*\])*")


def atom(text: str) -> str:
    """The text as an operand of any operator."""
    return text if _ATOM.fullmatch(text) else f"({text})"


def repeats_right(f: CombineFunction) -> bool:
    """Whether the text of the right operand's first component would stand more than once."""
    return sum(isinstance(x, Var) and x.name == "r0" for e in f.values for x in walk(e)) > 1
