"""The benchmarks at small sizes: every case compiles and runs, every peer that is installed has right results."""

import functools
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import compiled
from benchmarks.__main__ import main, table
from benchmarks.cases import CASES, GROUPS, Case
from benchmarks.choice import Choice, choice, judged
from benchmarks.choice import table as choices
from benchmarks.figures import Figures, recorded
from benchmarks.naive import with_directives
from benchmarks.page import main as show_page
from benchmarks.page import page
from benchmarks.peers.serve import placed
from benchmarks.plot import chart
from benchmarks.process import Peer
from benchmarks.run import PYTHON, Row, Settings, bound, run_case
from benchmarks.seeds import Found, found_again
from benchmarks.seeds import main as search_twice
from benchmarks.seeds import table as seeds_table
from mdh_core.expr import FLOAT, INT32
from tuning.ceilings import Limits
from tuning.harness import ArrayArg, Candidate, ScalarArg, Subject
from tuning.measure import run_bench
from tuning.results import TuneResult
from tuning.runner import Limits as WorkLimits
from tuning.runner import Outcome, Workbench
from tuning.search import FAVOURITES, Evaluation, SearchResult
from tuning.toolchain import Toolchain

LIMITS = Limits(read=1e9, copy=1e9, peak_float=1e9, peak_double=0.5e9, update=1e9)
BY_NAME = {c.name: c for c in CASES}
PROGRAMS = list({(c.program, c.operation): c for c in CASES}.values())  # one case of each nest
SOME = PROGRAMS[::3]  # the same ones every day; `python -m benchmarks --small` takes them all
PEERS_PYTHON = os.environ.get("MDH_LIFT_PEERS_PYTHON", "")
PACKAGE = {"numba": "numba", "tvm": "tvm", "halide": "halide", "pytorch": "torch", "openblas": "numpy",
           "openblas-512": "numpy", "mkl": "mkl"}  # fmt: skip


def small(case: Case, *peers: str) -> Row:
    pythons = {"": PEERS_PYTHON}
    return run_case(case.small(), 2, Settings(peers, 0, "0", 4, 60.0, pythons), lambda: LIMITS)


# --------------------------------------------------------------------------- the table of cases


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(CASES)


def test_groups_have_all_that_is_asked_for() -> None:
    per_group = {g: sum(c.group == g for c in CASES) for g in GROUPS}
    assert per_group["polyhedral"] == 30
    assert per_group["contractions"] == 9


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_formulas_have_values(case: Case) -> None:
    for which in (case, case.small()):
        assert which.traffic > 0
        assert which.operations >= 0
        assert all(v >= 0 for v in which.sizes.values())
        assert all(v > 0 for v in which.dimensions)


@pytest.mark.parametrize(
    "name, operations, traffic",
    [
        ("matmul_1024", 2 * 1024**3, 4 * 4 * 1024**2),  # A, B, and C twice
        ("matvec_4096", 2 * 4096**2, 4 * (4096**2 + 4096 + 2 * 4096)),
        ("mcc_mobilenet_1", 2 * 112 * 112 * 32 * 27, 4 * (226 * 226 * 3 + 32 * 27 + 112 * 112 * 32)),
    ],
)
def test_work_of_a_case(name: str, operations: int, traffic: int) -> None:
    assert (BY_NAME[name].operations, BY_NAME[name].traffic) == (operations, traffic)


def test_limit_is_the_longer_of_both() -> None:
    assert bound(BY_NAME["matmul_1024"], LIMITS, False) == (2 * 1024**3 / 1e9, "FMA peak")
    assert bound(BY_NAME["matmul_double_1024"], LIMITS, True) == (2 * 1024**3 / 0.5e9, "FMA peak")
    assert bound(BY_NAME["dot_2^24"], LIMITS, False) == (8 * 2**24 / 1e9, "read bandwidth")


@pytest.mark.parametrize(
    "name, updated, written",
    [
        ("matmul_1024", 4 * 1024**2, 0),
        ("ccsdt_gdab_efgc", 4 * 24**2 * 16**4, 0),
        ("jacobi3d_256", 0, 4 * 254**3),
        ("dot_2^24", 4, 0),
    ],
)
def test_what_is_stored_has_limits_of_its_own(name: str, updated: int, written: int) -> None:
    """What is added to is updated in place; what is written, with as much of what is read, is copied."""
    case = BY_NAME[name]
    assert compiled.prepare(case).stored == (updated, written)
    rate = LIMITS.read
    slow = replace(LIMITS, peak_float=1e30, update=rate / 4, copy=rate / 5, move=rate / 2)
    seconds, of = bound(case, slow, False, updated, written)
    assert seconds == pytest.approx((case.traffic + 6 * updated + 2 * written) / rate)
    assert of == ("copy bandwidth" if written else "read bandwidth" if updated == 4 else "update bandwidth")


def test_published_sizes() -> None:
    assert BY_NAME["mcc_resnet50_1"].sizes["height"] == 230
    assert BY_NAME["mcc_vgg16_1"].sizes["width"] == 226
    assert BY_NAME["mcc_mobilenet_1"].sizes["height"] == 225


# --------------------------------------------------------------------------- compiled peers


@pytest.mark.parametrize("case", SOME, ids=lambda c: c.name)
def test_original_and_naive_agree(case: Case) -> None:
    row = small(case, "naive")
    assert row.why in ({}, {"naive": "no loop is parallel as it is written"})


@pytest.mark.parametrize("name", ["matmul_1024", "dot_2^24", "jacobi3d_256", "cholesky", "prl_2^15"])
def test_default_agrees(name: str) -> None:
    row = small(BY_NAME[name], "default")
    assert not row.why


@pytest.mark.parametrize("name", ["matmul_1024", "jacobi3d_256"])
def test_polly_agrees_or_is_missing(name: str) -> None:
    assert set(small(BY_NAME[name], "polly").why) == (set() if compiled.has_polly() else {"polly"})


def test_directive_and_private_scalars() -> None:
    nest = "for (i = 0; i < n; i++) { s = 0; for (j = 0; j < n; j++) s += a[j]; b[i] = s; }"
    text = with_directives(nest, "0", ["i", "j", "s", "t"])
    assert text.startswith("\n#pragma omp parallel for private(i, j, s)\nfor (i = 0")
    inner = with_directives(nest, "1:reduction(+:s)", ["i", "j", "s", "t"])
    assert "\n#pragma omp parallel for private(j) reduction(+:s)\nfor (j = 0" in inner


def test_wrong_result_is_not_timed() -> None:
    """A sum without its reduction: every thread has one of its own."""
    row = small(replace(BY_NAME["dot_2^24"], naive="0"), "naive")
    assert row.why["naive"].startswith("wrong: sum[0]")
    assert "naive" not in row.seconds
    assert table([row], ["original", "naive"]).splitlines()[1].split()[4] == "wrong"


# --------------------------------------------------------------------------- peers in Python


def test_arrays_of_all_peers_begin_at_the_same_places_of_their_pages(tmp_path: Path) -> None:
    """Apart from each other: what is written a line behind what is read may cost twice as much (`place_of` in driver.c)."""
    arrays = [placed(np.zeros(100, np.float32), k + 1) for k in range(6)]  # argument 0 is n
    places = [a.ctypes.data % 4096 for a in arrays]
    assert len({p % 4096 // 64 for p in places}) == 6
    assert all(abs(p - q) % 4096 >= 512 for p, q in itertools.permutations(places, 2))
    names = [f"y{k}" for k in range(6)]
    parameters = ", ".join(f"float *{y}" for y in names)
    store = " ".join(f"{y}[i] = 1;" for y in names)
    text = f"void f(int n, {parameters})\n{{\n    for (int i = 0; i < n; i++) {{ {store} }}\n}}\n"
    start, stop = text.index("    for"), text.rindex("}")
    subject = Subject(
        text.encode(), "case.c", len(text), text[start:stop].encode(), 3,
        (ScalarArg("n", "int", INT32), *(ArrayArg(y, "float", FLOAT) for y in names)),
        lambda sizes: dict.fromkeys(names, sizes["n"]),
    )  # fmt: skip
    there = " && ".join(f"(__UINTPTR_TYPE__){y} % 4096 == {p}" for y, p in zip(names, places, strict=True))
    kernel = f"static int kernel(int n, {parameters})\n{{\n    if (!({there})) return 0;\n    {text[start:stop]}    return 1;\n}}\n"
    bench = Workbench(Toolchain(flags=("-O1",)), WorkLimits(), threads=1, jobs=1, cache_dir=tmp_path)
    built = bench.build(subject, Candidate(kernel, f"kernel(n, {', '.join(names)})"))
    assert built.ok, built
    ran = run_bench(bench, subject, built.data["program"], {"n": 100}, which=3, seconds=0, min_rounds=1)
    assert ran.ok, ran  # it declines where they are elsewhere


@functools.cache
def installed() -> tuple[str, ...]:
    """The peers whose packages the Python of the peers has; the others have nothing to show."""
    look = "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if u.find_spec(n)])"
    python = PEERS_PYTHON or sys.executable
    found = subprocess.run([python, "-c", look, *PACKAGE.values()], capture_output=True, text=True, check=True)
    names = found.stdout.split()
    return tuple(p for p in PYTHON if p not in ("tvm", "mkl") and PACKAGE[p] in names)


OPERATIONS = list({c.operation if "->" not in c.operation else c.name: c for c in CASES if c.operation}.values())


@pytest.mark.parametrize("case", OPERATIONS, ids=lambda c: c.name)
def test_peers_agree(case: Case) -> None:
    peers = installed()
    assert peers
    found = small(case, *peers).why
    assert set(found.values()) <= {"none"}, found


def test_missing_peer_is_a_dash(tmp_path: Path) -> None:
    """A Python that lacks a package; and a peer that has nothing for the case."""
    hidden = tmp_path / "numba.py"
    hidden.write_text("raise ImportError('hidden')\n")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    settings = Settings(("numba", "mkl"), 1, "0", 4, 60.0, {"numba": str(wrapper)})
    row = run_case(BY_NAME["scan_2^24"].small(), 2, settings, lambda: LIMITS)
    assert row.why["numba"].startswith("missing")
    assert "mkl" in row.why
    line = table([row], ["original", "numba", "mkl"]).splitlines()[1].split()
    assert line[4:6] == ["-", "-"]


def test_limits_are_those_of_the_rounds() -> None:
    """What memory gave before the first round does not count, and one quiet moment is not the limit."""
    given = iter([1e9, 5e9, 4e9, 3e9])
    next(given)
    settings = Settings(("original",), 3, "0", 4, 60.0)
    row = run_case(BY_NAME["dot_2^24"].small(), 2, settings, lambda: replace(LIMITS, read=next(given)))
    assert row.limits == replace(LIMITS, read=4e9)
    assert next(given, None) is None


@pytest.fixture
def two_columns(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Row, list[str]]]:
    """Runs Dot's default beside a search that ends with it, or not; the row, and the processes started."""

    def run(same: bool, fails: bool = False) -> tuple[Row, list[str]]:
        started: list[str] = []

        def chosen(peer: str, prepared: compiled.Prepared, budget: str) -> dict[str, object]:
            point = dict(prepared.work.plan.default)
            return point if same or peer == "default" else point | {"lanes": 24}

        class Counted(Peer):
            def __init__(self, name: str, *rest: Any) -> None:
                started.append(name)
                super().__init__(name, *rest)

            def round(self) -> None:
                super().round()
                if fails and self.name == "default":
                    self.problem = "slow"

        monkeypatch.setattr("benchmarks.compiled._point", chosen)
        monkeypatch.setattr("benchmarks.run.Peer", Counted)
        settings = Settings(("default", "tuned"), 2, "0", 4, 60.0)
        return run_case(BY_NAME["dot_2^24"].small(), 2, settings, lambda: LIMITS), started

    return run


@pytest.mark.parametrize("same", [True, False])
def test_failure_of_the_default_is_told_of_both_columns(same, two_columns) -> None:
    row, _ = two_columns(same, fails=True)
    assert "default" not in row.seconds and row.why["default"] == "slow"
    assert ("tuned" in row.seconds) is not same
    assert row.why.get("tuned") == ("slow" if same else None)


@pytest.mark.parametrize("same", [True, False])
def test_search_that_keeps_the_default_has_one_process(same: bool, two_columns) -> None:
    """Two processes of one program differ by the pages that they got, and the table would show that."""
    row, started = two_columns(same)
    assert started == ["original", "default"] + ["tuned"] * (not same)
    assert (row.samples["tuned"] == row.samples["default"]) is same
    assert len(row.samples["tuned"]) == len(row.bounds) == 2
    assert row.json()["configuration"] == row.point != {}


# --------------------------------------------------------------------------- the command


def test_command_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.svg"
    status = main(["--small", "--no-tune", "--rounds", "1", "--threads", "1,2", "--peers", "naive,default",
                   "--json", str(figures), "--plot", str(plot), "dot_2^24"])  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert [line.split()[:2] for line in lines[1:3]] == [["dot_2^24", "1"], ["dot_2^24", "2"]]
    assert '"limit_seconds"' in figures.read_text()
    assert [len(f.limits) for f in recorded(figures.read_text())] == [1, 1]
    assert plot.read_text().startswith("<svg")


def test_a_peer_ends_with_the_command(tmp_path: Path) -> None:
    """Told to end while a peer prepares itself, and while that has begun a process of its own."""
    told = tmp_path / "told"
    (tmp_path / "peer.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        f"open({str(told)!r} + '.part', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.replace({str(told)!r} + '.part', {str(told)!r})\n"
        "time.sleep(100)\n"
    )
    (tmp_path / "command.py").write_text(
        "import pathlib, runpy, sys\n"
        "from benchmarks import compiled, process\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "compiled.prepare = lambda case: process.Peer(\n"
        "    'p', [sys.executable, str(here / 'peer.py')], 1, here / 'out', {}, 9.0)\n"
        "sys.argv = ['benchmarks', '--small', 'dot_2^24']\n"
        "runpy.run_module('benchmarks', run_name='__main__')\n"
    )
    root = Path(__file__).parent.parent
    paths = {**os.environ, "PYTHONPATH": str(root)}
    command = subprocess.Popen([sys.executable, str(tmp_path / "command.py")], cwd=root, env=paths)
    until = time.monotonic() + 60
    while not told.exists() and time.monotonic() < until:
        time.sleep(0.05)
    processes = [int(n) for n in told.read_text().split()]
    command.terminate()
    assert command.wait(30) == 143
    while any(map(_runs, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(_runs, processes))


def _runs(process: int) -> bool:
    try:
        return " Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2][:3]
    except FileNotFoundError:
        return False


def test_list_and_groups(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list"])
    assert capsys.readouterr().out.startswith("gemm: matmul_1024")


def test_chart_scales_to_the_fastest() -> None:
    drawn = chart([("a & b", {"x": 1.0, "y": 2.0})], "t")
    assert "a &amp; b" in drawn
    assert 'width="560.0"' in drawn
    assert 'width="280.0"' in drawn


# --------------------------------------------------------------------------- the model's choices


def _evaluation(text: str, seconds: float, kind: str = "ok") -> Evaluation:
    return Evaluation({"n": text}, Outcome(kind), seconds, text=text)


def test_shares_of_the_best() -> None:
    """Times in turn where there are some; of others, what they took alone, but no less than the best."""
    every = [_evaluation("d", 4.0), _evaluation("f", 2.0), *(_evaluation(f"x{k}", 9.0) for k in range(FAVOURITES))]
    every += [_evaluation("b", 1.0), _evaluation("w", math.inf, "wrong result")]
    leaders = (_evaluation("b", 1.5), _evaluation("d", 3.0))
    result = TuneResult(None, SearchResult(tuple(every), leaders, "s", 1, "budget spent"))
    found = judged("case", result, 1)
    assert (found.default, found.favourite, found.best, found.tried) == (3.0, 2.0, 1.5, len(every))
    assert found.shares == (0.5, 0.75)
    other = Choice("other", 1.0, 1.0, 1.0, 5)
    lines = [line.split() for line in choices([found, other]).splitlines()]
    assert lines[-2][-2:] == ["0.707", "0.866"] and lines[-1][-2:] == ["0.50", "0.75"]


def test_a_default_that_does_not_run_is_no_choice() -> None:
    result = TuneResult(None, SearchResult((_evaluation("d", math.inf, "crashed"),), (_evaluation("b", 1.0),), "s", 1, ""))
    with pytest.raises(compiled.Missing):
        judged("case", result, 1)


def test_choice_of_a_case() -> None:
    found = choice(BY_NAME["dot_2^24"].small(), 2, "4ev")
    assert found.tried >= 2 and 0 < found.best <= found.favourite <= found.default


# --------------------------------------------------------------------------- found again with other seeds


def test_winners_are_compared_round_by_round() -> None:
    """The machine is twice as slow in the second round, for both."""
    drifting = Found("a", (3.0, 6.0, 3.0), ((1.0, 2.0, 1.1), (1.2, 2.2, 1.1)), (7, 9))
    assert drifting.apart == pytest.approx(1.1)  # of 1.2, 1.1, 1.0
    same = Found("b", (1.0, 1.0), ((1.0, 1.0), (1.0, 1.0)), (1, 2))
    assert same.apart == 1.0
    lines = [line.split() for line in seeds_table([drifting, same]).splitlines()]
    assert lines[1] == ["a", "3e+03", "1.1e+03", "1.2e+03", "7+9", "1.100"] and lines[2][-2:] == ["1+2", "1.000"]


def test_equal_winners_share_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    begin = Peer.__init__

    def counted(self: Peer, name: str, *rest: Any) -> None:
        started.append(name)
        begin(self, name, *rest)

    def default(prepared: compiled.Prepared, budget: str, seed: int) -> TuneResult:
        best = _evaluation("d", 1.0)
        winner = SimpleNamespace(point=prepared.work.plan.default)
        return TuneResult(winner, SearchResult((best,), (best,), "s", seed, ""))  # type: ignore[arg-type]

    monkeypatch.setattr(Peer, "__init__", counted)
    monkeypatch.setattr("benchmarks.seeds.searched", default)
    found = found_again(BY_NAME["dot_2^24"].small(), 1, "1s", (1, 2), 2)
    assert started == ["0"] and found.tried == (1, 1) and found.apart == 1.0
    assert found.winners == (found.default, found.default) and len(found.default) == 2


def test_searches_with_different_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr("benchmarks.each.CASES", [BY_NAME["matvec_4096"].small()])
    told = tmp_path / "seeds.json"
    assert search_twice(["matvec_4096", "--budget", "24ev", "--seeds", "1,5", "--rounds", "2", "--json", str(told)]) == 0
    (row,) = json.loads(told.read_text())
    assert row["case"] == "matvec_4096" and min(row["tried"]) > 1 and [len(w) for w in row["winners"]] == [2, 2]
    assert capsys.readouterr().out.splitlines()[1].startswith("matvec_4096")
    with pytest.raises(SystemExit):
        search_twice(["--seeds", "one"])


# --------------------------------------------------------------------------- figures as a page


def one_row(case: str, seconds: dict[str, float], **more: object) -> dict[str, object]:
    row = {"case": case, "threads": 2, "seconds": seconds, "missing": {}, "limit_seconds": 1e-3}
    return row | {"limit": "FMA peak"} | more


def test_a_page_of_recorded_figures() -> None:
    rows = [
        one_row("dot_2^24", {"original": 8e-3, "numba": 3e-3, "default": 2e-3}, limit="read bandwidth"),
        one_row("adi", {"original": 12e-3, "polly": 6e-3, "default": 3e-3, "tuned": 1.5e-3}),
        one_row("mm3", {"original": 2.5, "default": 2.0}, missing={"polly": "wrong: E[0] is 45.0"}),
    ]
    text = page(recorded(json.dumps(rows)), ["polly"])
    assert text.splitlines()[0] == (
        "| case | limit | polly | best other | default | tuned | best other / default | best other / tuned "
        "| of the limit |"
    )
    assert "| dot_2^24 | 1 | - | 3 numba | 2 | - | 1.50 | - | 50 % of read bandwidth |" in text
    assert "| adi | 1 | 6 | 6 polly | 3 | 1.5 | 2.00 | 4.00 | 67 % of FMA peak |" in text
    assert "| mm3 | 1 | wrong | 2500 original | 2000 | - | 1.25 | - | 0 % of FMA peak |" in text
    assert "the best other / default 1.55 (3, least 1.25)" in text  # the cube root of 1.5 * 2 * 1.25
    assert "polly / tuned 4.00 (1, least 4.00)" in text


def test_ratios_are_those_of_each_round() -> None:
    """Rounds of which every second is twice as fast for all: ratios of medians would be those of chance."""
    samples = {
        "original": [9.0, 4.5, 9.0, 4.5, 9.0],
        "numba": [3.0, 1.5, 3.0, 1.5, 1.4],
        "polly": [2.2, 1.1, 2.2, 1.1, 9.0],
        "default": [2.0, 1.0, 2.0, 1.0, 1.0],
    }
    seconds = {name: sorted(x)[2] for name, x in samples.items()}
    row = Figures("adi", 2, seconds, {}, 0.5, "FMA peak", samples, [1.0, 0.5, 1.2, 0.4, 0.5])
    assert row.best_other() == "polly" and seconds["polly"] > seconds["numba"]
    assert row.gain("default") == pytest.approx(1.1) and row.gain("default", "numba") == pytest.approx(1.5)
    assert row.share("default") == 0.5
    assert row.gain("tuned") is None and row.gain("default", "halide") is None
    assert replace(row, samples={}, limits=()).gain("default", "numba") == 1.5 / 1.0
    assert replace(row, limits=()).share("default") == 0.5 / 1.0


def test_a_page_takes_the_last_of_several_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    for k, file in enumerate(files):
        adi = one_row("adi", {"original": 2.0, "default": 1.0 + k})
        file.write_text(json.dumps([adi, one_row(f"c{k}", {})]))
    assert show_page([str(f) for f in files]) == 0
    told = capsys.readouterr().out
    assert told.count("| adi |") == 1 and "| adi | 1 | 2000 original | 2000 | 1.00 |" in told
    assert "| c0 |" in told and "| c1 |" in told


def test_rows_of_a_page_are_in_the_order_of_the_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    seconds = {"original": 1.0, "default": 0.5}
    names = ["mystery", "adi", "scan_2^24", "matmul_1024"]
    file.write_text(json.dumps([one_row(n, seconds, threads=t) for n in names for t in (2, 1)]))
    assert show_page([str(file)]) == 0
    rows = [line.split(" | ")[:2] for line in capsys.readouterr().out.splitlines()[2:-2]]
    expected = [n for n in reversed(names) for _ in range(2)]
    assert rows == [[f"| {n}", "12"[k % 2]] for k, n in enumerate(expected)]


def test_figures_are_written_case_by_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends a long run has what was measured until then."""
    rows = iter([Row(BY_NAME["adi"], 2, {"default": 1.0}, {}, LIMITS, 0.5, "FMA peak", {}, {})])

    def one(case: Case, *_: object) -> Row:
        if case.name != "adi":
            raise KeyboardInterrupt
        return next(rows)

    monkeypatch.setattr("benchmarks.__main__.run_case", one)
    monkeypatch.setattr("benchmarks.__main__.measure_limits", lambda *_, **__: LIMITS)
    file = tmp_path / "figures.json"
    with pytest.raises(KeyboardInterrupt):
        main(["adi", "mvt", "--json", str(file)])
    assert [f.case for f in recorded(file.read_text())] == ["adi"]
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_written_is_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["adi", "--json", str(tmp_path / "absent" / "figures.json")])
    assert ended.value.code == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_page_without_anything_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    file.write_text(json.dumps([one_row("adi", {"original": 1.0})]))
    assert show_page([str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "| adi | 1 | 1000 original | - |"
    with pytest.raises(SystemExit):
        show_page([str(file), "--peers", "poly"])
    assert "unknown peer poly" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", '[{"case": "adi"}]', "3", "[]"])
def test_a_page_of_something_else(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        show_page([str(file)])
    assert ended.value.code == 2
    assert "figures" in capsys.readouterr().err
