"""Fusion of neighbouring programs: what is offered, what it saves, and that it means the same.

A fused program runs on random data beside the programs that it joins (the interpreter, also with its index
sets divided at random); every buffer that is still needed must end the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from frontend_c.preprocess import CompileCommand
from frontend_c.read import read
from lifter.describe import to_json
from lifter.fusion import Fusion, fused, fusions, neighbours
from lifter.lift import LiftedNest, lift
from mdh_core.interpreter import BufferValue, row_major, run_steps
from mdh_core.ir import Buffer, HostLoop, Step
from mdh_core.rules import verify
from mdh_core.source import SourceFile
from tests.lifting import alike, lifted, needed_extents, random_value, step_lines

CORPUS = Path(__file__).parent.parent / "corpus"
SIZES = (0, 1, 2, 3, 5)

HEAD = """int n, int m, int k, int a[restrict n + 2][m + 2], int b[restrict n + 2][m + 2],
    int c[restrict n + 2][m + 2], int u[restrict n + 2], int v[restrict n + 2], int w[restrict n + 2]"""


def nest(body: str, head: str = HEAD) -> LiftedNest:
    found = lifted(f"#include <math.h>\nvoid f({head})\n{{\n#pragma mdh\n{{ {body} }}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return found


def choices(found: LiftedNest, temporaries: Sequence[str] = ()) -> tuple[Fusion, ...]:
    """The fusions where these arrays of the function are taken for temporaries of the kernel."""
    mine = [b for b in buffers_of(found) if b.name in temporaries]
    return fusions(found.program, (*found.temporaries, *mine))


def buffers_of(found: LiftedNest) -> list[Buffer]:
    return list({b.name: b for p in found.programs for b in p.buffers}.values())


def agree(found: LiftedNest, chosen: Sequence[Fusion], rng: random.Random) -> None:
    """The steps, and the steps with all the fusions, on the same random data."""
    after: tuple[Step, ...] = found.program
    for f in reversed(chosen):
        assert verify(f.program) == []
        after = fused(after, f)
    gone = {name for f in chosen for name in f.unneeded}
    for trial in range(10):
        params = {p.name: rng.choice(SIZES) for p in found.nest.params}
        extents = needed_extents(found.program, params)
        if extents is None:
            continue
        start = {}
        for b in buffers_of(found):
            e = extents.get(b.name, (0,) * b.rank)  # a loop that does not run
            size = row_major((*e, 1))[0] * e[0] if e else 1
            start[b.name] = BufferValue([random_value(b.type, rng) for _ in range(size)], e)
        plain, joint = ({n: v.copy() for n, v in start.items()} for _ in range(2))
        run_steps(found.program, params, plain)
        run_steps(after, params, joint, split=rng if trial % 2 else None)
        for name in start.keys() - gone:
            pairs = zip(plain[name].data, joint[name].data, strict=True)
            assert all(alike(x, y) for x, y in pairs), (name, params)


# --------------------------------------------------------------------------- what is offered


@dataclass(frozen=True)
class Case:
    """``kinds`` of the only fusion of a nest and what it saves; ``temporaries``: arrays taken for such."""

    body: str
    kinds: tuple[str, ...]
    saved: tuple[str, ...]
    temporaries: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()


LOOPS = "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++)"
ROWS = "for (int i = 0; i < n; i++)"
SUM = f"{ROWS} {{ u[i] = 0; for (int j = 0; j < m; j++) u[i] += a[i][j]; }}"
GREATEST = f"{ROWS} {{ v[i] = -9; for (int j = 0; j < m; j++) v[i] = v[i] < a[i][j] ? a[i][j] : v[i]; }}"
MATRIX = "cells of 4 bytes)"

OFFERED = {
    "value is passed on": Case(
        f"{LOOPS} b[i][j] = 2 * a[i][j]; {LOOPS} c[i][j] = b[i][j] + 1;",
        ("maps",),
        (f"reading `b` (n*m {MATRIX}",),
    ),
    "temporary between maps": Case(
        f"{LOOPS} b[i][j] = 2 * a[i][j]; {LOOPS} c[i][j] = b[i][j] + a[i][j];",
        ("maps",),
        (f"reading `b` (n*m {MATRIX}", f"reading `a` (n*m {MATRIX}", f"writing `b` (n*m {MATRIX}"),
        ("b",),
        ("b",),
    ),
    "both read": Case(
        f"{LOOPS} b[i][j] = 2 * a[i][j]; {LOOPS} c[i][j] = a[i][j] - k;",
        ("maps",),
        (f"reading `a` (n*m {MATRIX}",),
    ),
    "other order of loops": Case(
        f"{LOOPS} b[i][j] = 2 * a[i][j];"
        " for (int j = 0; j < m; j++) for (int i = 0; i < n; i++) c[i][j] = b[i][j] + k;",
        ("maps",),
        (f"reading `b` (n*m {MATRIX}",),
    ),
    "first is overwritten": Case(
        f"{LOOPS} b[i][j] = 2 * a[i][j]; {LOOPS} b[i][j] = b[i][j] * b[i][j];",
        ("maps",),
        (f"reading `b` (n*m {MATRIX}", f"writing `b` (n*m {MATRIX}"),
    ),
    "second writes what the first reads at the point": Case(
        f"{LOOPS} b[i][j] = 2 * a[i][j]; {LOOPS} a[i][j] = b[i][j] + 1;",
        ("maps",),
        (f"reading `b` (n*m {MATRIX}",),
    ),
    "read under a condition": Case(
        f"{LOOPS} b[i][j] = 2 * a[i][j]; {LOOPS} c[i][j] = k > i ? b[i][j] * a[i][j + 1] : 0;",
        ("maps",),
        (f"reading `b` (n*m {MATRIX}",),
    ),
    "three in a row": Case(
        f"{ROWS} u[i] = 2 * w[i]; {ROWS} v[i] = u[i] + w[i]; {ROWS} w[i] = u[i] * v[i];",
        ("maps", "maps"),
        (
            f"reading `u` (n {MATRIX}", f"reading `w` (n {MATRIX}",
            f"reading `u` (n {MATRIX}", f"reading `v` (n {MATRIX}",
        ),
    ),
    "the same triangle": Case(
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) if (j <= i) b[i][j] = 2 * a[i][j];"
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) if (i >= j) c[i][j] = b[i][j];",
        ("maps",),
        (f"reading `b` (n*m {MATRIX}",),
    ),
    "epilogue": Case(f"{SUM} {ROWS} v[i] = u[i] * w[i];", ("epilogue",), (f"reading `u` (n {MATRIX}",)),
    "epilogue in place": Case(
        f"{SUM} {ROWS} u[i] = u[i] * u[i] + 1;",
        ("epilogue",),
        (f"reading `u` (n {MATRIX}", f"writing `u` (n {MATRIX}"),
    ),
    "epilogue of a temporary": Case(
        f"{SUM} {ROWS} v[i] = u[i] * w[i];",
        ("epilogue",),
        (f"reading `u` (n {MATRIX}", f"writing `u` (n {MATRIX}"),
        ("u",),
        ("u",),
    ),
    "epilogue of a scan": Case(
        f"for (int i = 0; i < n; i++) u[i + 1] = u[i] + w[i]; {ROWS} v[i] = u[i + 1] * 3;",
        ("epilogue",),
        (f"reading `u` (n {MATRIX}",),
    ),
    "two reductions": Case(f"{SUM} {GREATEST}", ("reductions",), (f"reading `a` (n*m {MATRIX}",)),
    "two reductions and an epilogue": Case(
        f"{SUM} {GREATEST} {ROWS} w[i] = u[i] - v[i];",
        ("reductions", "epilogue"),
        (f"reading `a` (n*m {MATRIX}", f"reading `u` (n {MATRIX}", f"reading `v` (n {MATRIX}"),
    ),
    "producer": Case(
        f"{LOOPS} b[i][j] = a[i][j] * a[i][j];"
        f"{ROWS} {{ u[i] = 0; for (int j = 0; j < m; j++) u[i] += b[i][j] * c[i][j]; }}",
        ("producer",),
        (f"reading `b` (n*m {MATRIX}", f"writing `b` (n*m {MATRIX}"),
        ("b",),
        ("b",),
    ),
    "producer of fewer dimensions": Case(
        f"{ROWS} w[i] = v[i] * v[i]; {LOOPS} b[i][j] = w[i] * a[i][j];",
        ("producer",),
        (f"reading `w` (n {MATRIX}", f"writing `w` (n {MATRIX}"),
        ("w",),
        ("w",),
        ("m",),
    ),
    "producer of more points": Case(
        f"{LOOPS} b[i][j] = a[i][j] * 3; "
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) if (j < i) c[i][j] = b[i][j];",
        ("producer",),
        (f"reading `b` (n*m {MATRIX}", f"writing `b` (n*m {MATRIX}"),
        ("b",),
        ("b",),
    ),
    "producer read at several positions": Case(
        "for (int i = 1; i < n - 1; i++) w[i] = v[i - 1] + 2 * v[i] + i * v[i + 1];"
        "for (int r = 3; r < n - 1; r++) u[r] = w[r - 2] * w[r - 1] - w[r - 2] + w[r];",
        ("producer",),
        (f"reading `w` ((n - 4) {MATRIX}", f"writing `w` ((n - 2) {MATRIX}"),
        ("w",),
        ("w",),
        ("3",),
    ),
    "producer at distances known at run time": Case(
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) b[i][j] = a[i][j] * i - j;"
        "for (int i = 0; i < n - 1; i++) for (int j = 0; j < m - k; j++) if (k >= 0)"
        " c[i][j] = b[i + 1][j + k];",
        ("producer",),
        (f"reading `b` ((n - 1)*(-k + m) {MATRIX}", f"writing `b` (n*m {MATRIX}"),
        ("b",),
        ("b",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OFFERED)
def test_offered(name: str) -> None:
    case = OFFERED[name]
    found = nest(case.body)
    (fusion,) = choices(found, case.temporaries)
    assert (fusion.path, fusion.first, fusion.count) == ((), 0, len(case.kinds) + 1)
    assert fusion.kinds == case.kinds
    assert tuple(map(str, fusion.saved)) == case.saved
    assert fusion.unneeded == case.unneeded
    assert tuple(map(str, fusion.repeated)) == case.repeated
    assert {b.name for b in fusion.program.buffers}.isdisjoint(case.unneeded)
    agree(found, (fusion,), random.Random(name))


def test_conditional_reads_stay_conditional() -> None:
    found = nest(OFFERED["read under a condition"].body)
    (fusion,) = choices(found)
    assert {(str(a.index[1]), a.conditional) for a in fusion.program.inp.accesses if a.buffer == "a"} == {
        ("j", False), ("j + 1", True)
    }  # fmt: skip


# --------------------------------------------------------------------------- what is not


NOT_OFFERED = {
    "stencil": f"{LOOPS} b[i][j] = a[i][j]; {LOOPS} c[i][j] = b[i][j] + b[i + 1][j];",
    "shifted": f"{LOOPS} b[i][j + 1] = a[i][j]; {LOOPS} c[i][j] = b[i][j];",
    "second writes what the first reads elsewhere": (
        f"{LOOPS} b[i][j] = a[i][j] + a[i][j + 1]; {LOOPS} a[i][j] = b[i][j];"
    ),
    "nothing in common": f"{LOOPS} b[i][j] = k; {LOOPS} c[i][j] = k;",
    "other sizes": (
        f"{LOOPS} b[i][j] = a[i][j];"
        " for (int i = 0; i < n; i++) for (int j = 0; j < m - 1; j++) c[i][j] = b[i][j];"
    ),
    "other domains": (
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) if (j <= i) b[i][j] = a[i][j];"
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) if (j < i) c[i][j] = b[i][j] + a[i][j];"
    ),
    "both write, at other positions": f"{LOOPS} b[i][j] = a[i][j]; {LOOPS} b[i][j + 1] = a[i][j] + 1;",
    "reduction and what it reads": f"{SUM} {LOOPS} a[i][j] = a[i][j] - u[i];",
    "second reduction needs the first": (
        f"{SUM} {ROWS} {{ v[i] = 0; for (int j = 0; j < m; j++) v[i] += a[i][j] * u[i]; }}"
    ),
    "second reduction starts from the first": (
        f"{SUM} {ROWS} {{ v[i] = u[i]; for (int j = 0; j < m; j++) v[i] += a[i][j]; }}"
    ),
    "epilogue overwrites what is reduced": f"{SUM} {ROWS} a[i][0] = u[i];",
    "epilogue with a conditional read": f"{SUM} {ROWS} v[i] = k > i ? u[i] * w[i + 1] : 0;",
    "other kinds of dimensions": (
        f"{SUM} for (int j = 0; j < m; j++) {{ c[0][j] = 0; for (int i = 0; i < n; i++) c[0][j] += a[i][j]; }}"
    ),
    "producer that lacks points": (
        f"{ROWS} w[i] = v[i] * 2; for (int i = 0; i < n; i++) u[i] = w[i] + w[i + 1];"
    ),
    "producer in columns": (
        f"{LOOPS} b[i][j] = a[i][j] * 2; for (int i = 0; i < n; i++) for (int j = 0; j < n; j++)"
        " if (i < m && j < n) c[j][i] = b[j][j];"
    ),
    "producer that is no temporary": (
        f"{LOOPS} b[i][j] = a[i][j] * 2; {ROWS} for (int j = 0; j < m; j++) u[i] += b[i][j];"
    ),
}


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_not_offered(name: str) -> None:
    found = nest(NOT_OFFERED[name])
    assert len(found.programs) == 2, step_lines(found.program)
    assert found.fusions == ()
    if "producer" in name and "no temporary" not in name:
        assert choices(found, ("b", "w")) == ()


def test_data_decide_what_is_read() -> None:
    head = "int n, int *restrict u, int *restrict v, int *restrict w, int *restrict at"
    assert nest(f"{ROWS} u[i] = v[i]; {ROWS} w[i] = u[at[i]] + v[i];", head).fusions == ()


def test_one_name_has_one_shape() -> None:
    """A flat array is a matrix to one program and a vector to the other."""
    head = "int n, int m, float *restrict x, float *restrict y"
    found = nest(f"{LOOPS} y[i * m + j] = x[i * m + j]; {ROWS} y[i] = x[i] * 2;", head)
    assert found.fusions == ()


def test_a_temporary_that_is_read_later_is_kept() -> None:
    found = nest(
        f"{LOOPS} b[i][j] = 2 * a[i][j]; {LOOPS} c[i][j] = b[i][j] + k;"
        f"{LOOPS} a[i][j] = b[i + 1][j];"
    )  # fmt: skip
    (fusion,) = choices(found, ("b",))
    assert fusion.count == 2 and fusion.unneeded == ()
    assert {s.buffer for s in fusion.program.out.stores} == {"b", "c"}


def test_a_temporary_may_be_carried() -> None:
    """What the next iteration of the host loop starts from is stored, if only two programs touch it."""
    found = nest(f"for (int t = 0; t < k; t++) {{ {ROWS} u[i] = u[i] * 2 + t; {ROWS} v[i] = v[i] + u[i]; }}")
    (fusion,) = choices(found, ("u",))
    assert fusion.unneeded == () and {s.buffer for s in fusion.program.out.stores} == {"u", "v"}
    agree(found, (fusion,), random.Random(2))


def test_inside_of_a_host_loop() -> None:
    found = nest(
        "for (int t = 0; t < k; t++) {"
        " for (int i = 1; i < n; i++) v[i] = u[i - 1] + u[i + 1];"
        " for (int i = 1; i < n; i++) w[i] = v[i] * 2;"
        " for (int i = 1; i < n; i++) u[i] = w[i]; }"
    )
    (fusion,) = found.fusions
    (loop,) = found.program
    assert isinstance(loop, HostLoop) and fusion.path == (0,)
    assert neighbours(found.program, fusion) == loop.body[fusion.first : fusion.first + fusion.count]
    agree(found, found.fusions, random.Random(1))


def test_what_is_told() -> None:
    found = nest(OFFERED["value is passed on"].body)
    (told,) = (d for d in found.diagnostics if d.code == "MDH104")
    assert told.severity == "info" and told.message == "`b` and `c` may be computed in one sweep"
    assert told.notes == ("this saves reading `b` (n*m cells of 4 bytes)",)
    assert [len(p.out.stores) for p in found.programs] == [1, 1]  # a choice that is not taken
    entry: Any
    (entry,) = to_json(found)["fusions"]  # type: ignore[misc] # a list
    assert (entry["at"], entry["count"], entry["kinds"]) == ([0], 2, ["maps"])
    assert entry["saves"] == [{"buffer": "b", "access": "read", "cells": "n*m", "bytes": 4}]
    assert [o["buffer"] for o in entry["program"]["outputs"]] == ["b", "c"]


# --------------------------------------------------------------------------- random neighbours


def random_body(rng: random.Random) -> str:
    """Two to four loops over the arrays of ``HEAD``, mostly at the very same positions."""

    def place(rank: int, names: str) -> str:
        shift = [rng.choice(["", "", "", "", " + 1"]) for _ in range(rank)]
        return rng.choice(names) + "".join(f"[{i}{s}]" for i, s in zip("ij", shift, strict=False))

    def value(rank: int) -> str:
        terms = [place(2, "abc") if rank == 2 and rng.random() < 0.7 else place(1, "uvw") for _ in range(2)]
        return f"{terms[0]} {rng.choice('+-*')} {rng.choice([terms[1], 'k', '3'])}"

    out = []
    for _ in range(rng.randint(2, 4)):
        match rng.choice(["map", "map", "row", "row", "sum", "greatest"]):
            case "map":
                guard = rng.choice(["", "", "", "if (j <= i) "])
                out.append(f"{LOOPS} {guard}{place(2, 'abc')} = {value(2)};")
            case "row":
                out.append(f"{ROWS} {place(1, 'uvw')} = {value(1)};")
            case kind:
                cell, start = place(1, "uvw"), rng.choice(["0", "k"])
                e = value(2).replace(cell[0] + "[", "a[0][")  # not of what it computes
                update = f"{cell} += {e};" if kind == "sum" else f"if ({cell} < {e}) {cell} = {e};"
                out.append(f"{ROWS} {{ {cell} = {start}; for (int j = 0; j < m; j++) {update} }}")
    return " ".join(out)


def test_random_neighbours() -> None:
    kinds: set[str] = set()
    count = 0
    for seed in range(200):
        rng = random.Random(seed)
        found = lifted(f"void f({HEAD})\n{{\n#pragma mdh\n{{ {random_body(rng)} }}\n}}\n")
        if found.status != "lifted":
            continue
        chosen = choices(found, rng.sample("abcuvw", rng.choice([0, 1, 2])))
        count += len(chosen)
        kinds |= {kind for f in chosen for kind in f.kinds}
        if chosen:
            agree(found, chosen, rng)
    assert kinds == {"maps", "epilogue", "reductions", "producer"} and count > 25


# --------------------------------------------------------------------------- the corpus


# Each is one program, or one that needs a whole reduction of the one before, or has other dimensions or
# operators.
UNFUSED = ["atax", "bicg", "blur", "correlation", "fdtd_2d", "gesummv", "layer_norm", "softmax", "trmm"]


@pytest.mark.parametrize("name", UNFUSED)
def test_corpus(name: str) -> None:
    text = (CORPUS / f"{name}.c").read_bytes()
    (found,) = read(SourceFile(f"{name}.c", text), CompileCommand(directory=str(CORPUS))).nests
    assert lift(found).fusions == ()
