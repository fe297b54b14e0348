"""The GPU benchmark on the processor: the whole path at small sizes, what is rejected, what ends early."""

from __future__ import annotations

import doctest
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import peers, plan, run, table
from benchmarks.gpu.__main__ import NO_DEVICE, main
from benchmarks.gpu.build import Failed, Toolchain
from benchmarks.gpu.cases import CASES
from benchmarks.gpu.plan import Planned, Unusable
from benchmarks.gpu.prepare import prepare
from benchmarks.gpu.run import Limits, Result, Run, Settings
from lowering.device import H200

ROOT = Path(__file__).parent.parent
BY_NAME = {c.name: c for c in CASES}
ASKED = {  # by the benchmark's own goals
    "dot_2^24", "dot_2^28", "matvec_8192", "matmul_1024", "matmul_4096", "matmul_16x1000x2048", "matmul_t_1024",
    "bmatmul_16x10x500x64", "conv2d_4096", "jacobi3d_512", "mcc_resnet50_1", "mcc_resnet50_16", "ccsdt_i1",
    "prl_2^15", "scan_2^26", "histogram_2^26",
}  # fmt: skip


def planned(name: str, operation: str = "dot", extents: tuple[int, ...] = (4,)) -> Planned:
    return Planned(name, operation, extents, 8, 32, (), ({"fast": "i"},))


# --------------------------------------------------------------------------- cases


def test_all_that_is_asked_for() -> None:
    assert set(BY_NAME) == ASKED
    assert len(BY_NAME) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_formulas_have_values(case: object) -> None:
    for which in (case, case.small()):  # type: ignore[attr-defined]
        assert which.traffic > 0
        assert which.operations >= 0
        assert all(v >= 0 for v in which.sizes.values())


def test_sizes() -> None:
    assert BY_NAME["dot_2^28"].traffic == 8 << 28
    assert BY_NAME["matmul_4096"].operations == 2 * 4096**3
    assert BY_NAME["histogram_2^26"].dimensions == [1 << 26, 256]
    assert BY_NAME["matmul_t_1024"].traffic == 4 * 4 * 1024**2


@pytest.mark.parametrize("module", [table, run])
def test_examples(module: object) -> None:
    done = doctest.testmod(module)  # type: ignore[arg-type]
    assert done.attempted > 0
    assert done.failed == 0


# --------------------------------------------------------------------------- the whole path


def test_three_cases_on_the_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prepared, compiled, compared, timed, searched; the figures are in the table and in the file."""
    names = ["dot_2^24", "matmul_16x1000x2048", "histogram_2^26"]
    status = main([*names, "--dry-run", "--points", "1", "--json", str(tmp_path / "figures.json")])
    printed = capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert status == 0, printed
    assert [c["case"] for c in figures["cases"]] == names
    for case in figures["cases"]:
        assert case["problem"] == ""
        assert case["rejected"] == {}
        assert case["default"] >= case["tuned"] > 0
        assert len(case["samples"]["point 0"]) >= 10
        assert case["case"] in printed
    assert "1" in figures["cases"][1]["milliseconds"]  # a point of the space was timed, too
    assert figures["limits"]["copy"] > 0
    assert figures["limits"]["peak"] > 0
    assert "nothing of a device" in printed


def run_elsewhere(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Where there is nothing but Python's standard library."""
    command = [sys.executable, "-S", "-m", "benchmarks.gpu", "--run", str(folder), "--dry-run", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_a_prepared_folder_needs_no_packages(tmp_path: Path) -> None:
    made, missing = prepare([BY_NAME["matvec_8192"]], tmp_path, H200, 0, small=True)
    assert not missing
    assert plan.read(tmp_path) == made
    done = run_elsewhere(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "matvec_8192" in done.stdout
    again = run_elsewhere(tmp_path / "matvec_8192")
    assert again.returncode == NO_DEVICE
    assert "no folder that --prepare wrote" in again.stderr


def test_wrong_results_and_crashes_are_not_timed(tmp_path: Path) -> None:
    """Of four points one is right: one adds, one ends the process, one does not compile."""
    made, _ = prepare([BY_NAME["matvec_8192"]], tmp_path, H200, 0, small=True)
    folder = tmp_path / "matvec_8192"
    text = (folder / "0.cu").read_text()
    head = text.index('extern "C" int')
    body = text.index("{", head)
    assert " * " in text[:head]
    (folder / "1.cu").write_text(text[: body + 1] + "\n  __builtin_trap();" + text[body + 1 :])
    (folder / "2.cu").write_text(text.replace("__global__ void", "__global__ nothing", 1))
    changed = text[text.index("__global__") : head].replace("v[", "2.0f*v[")
    assert "2.0f*v[" in changed
    (folder / "3.cu").write_text(text[: text.index("__global__")] + changed + text[head:])
    case = replace(made.cases[0], points=tuple({"number": k} for k in range(4)))
    call = Run(tmp_path, replace(made, cases=(case,)), None, Settings(peers=(), tell=lambda _: None))
    call.execute()
    (result,) = call.results
    assert set(result.milliseconds) == {0}
    assert result.rejected[1].startswith("ends with -")
    assert "nothing" in result.rejected[2]
    assert result.rejected[3].startswith("wrong: w[")


def _writer_of(fifo: Path, process: subprocess.Popen[str]) -> int:
    """Waits for a reader."""
    while process.poll() is None:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO
            time.sleep(0.02)
    raise AssertionError(process.communicate())


def test_an_interrupted_call_prints_what_there_is(tmp_path: Path) -> None:
    prepare([BY_NAME["matvec_8192"]], tmp_path, H200, 0, small=True)
    never_ends = tmp_path / "never_ends.h"
    os.mkfifo(never_ends)
    kernel = tmp_path / "matvec_8192" / "0.cu"
    kernel.write_text(f'#include "{never_ends}"\n' + kernel.read_text())
    command = [sys.executable, "-m", "benchmarks.gpu", "--run", str(tmp_path), "--dry-run"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    writer = _writer_of(never_ends, process)  # the compiler reads
    try:
        process.terminate()
        printed, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(writer)
    assert process.returncode == 130, errors
    assert "matvec_8192" in printed
    assert "Traceback" not in errors


HELD = """
static int x = 1, y = 0;
static int *there;
static int call(void **)
{
  cudaMemcpyAsync(there, &x, sizeof x, cudaMemcpyHostToDevice);
  cudaMemcpy(there + 1, there, sizeof x, cudaMemcpyDeviceToDevice);
  cudaMemcpy(&y, there + 1, sizeof y, cudaMemcpyDeviceToHost);
  return cudaDeviceSynchronize() == cudaSuccess;
}
int main()
{
  int handled = 0, second = 0;
  if (cudaMalloc((void **)&there, 2 * sizeof x) != cudaSuccess) return 1;
  if (!call(NULL) || y != 1) return 2; /* as ever */
  x = 5;
  if (bench_time(call, NULL, 64, &handled) < 0 || !handled) return 3;
  if (y != 1) return 4; /* nothing came back */
  cudaMemcpy(&second, there + 1, sizeof second, cudaMemcpyDeviceToHost);
  if (second != 1) return 5; /* nothing went there */
  return call(NULL) && y == 5 ? 0 : 6;
}
"""


def test_data_stay_while_a_call_is_timed(tmp_path: Path) -> None:
    """Copies between host and device are left out then, and only then."""
    source = tmp_path / "held.cu"
    source.write_text((ROOT / "benchmarks/gpu/resident.h").read_text() + HELD)
    program = Toolchain(tmp_path, None).plain(source)
    assert subprocess.run([str(program)], timeout=60).returncode == 0


def test_no_time_is_no_result(tmp_path: Path) -> None:
    """A call ends at its deadline, with a table of what there is."""
    made, _ = prepare([BY_NAME["matvec_8192"]], tmp_path, H200, 0, small=True)
    call = Run(tmp_path, made, None, Settings(deadline=0.2, tell=lambda _: None))
    started = time.monotonic()
    call.execute()
    assert time.monotonic() - started < 60
    assert not call.results[0].milliseconds
    assert call.results[0].problem
    assert "matvec_8192" in table.table(call.results, call.limits)
    assert "limits were not measured" in table.table(call.results, call.limits)


def test_no_device_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.__main__.cuda_device", lambda: None)
    assert main(["dot_2^24"]) == NO_DEVICE
    said = capsys.readouterr()
    assert "no CUDA device was found" in said.err
    assert said.out == ""


def test_what_spills_does_not_run(tmp_path: Path) -> None:
    """By nvcc, for a device that need not be there; the default is made in any case."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    made, _ = prepare([BY_NAME["matvec_8192"]], tmp_path, H200, 0, small=True)
    (case,), folder = made.cases, tmp_path / "matvec_8192"
    spills = """static __global__ void __launch_bounds__(1024, 2)
wide(float *x)
{
  float v[96];
  for (int k = 0; k < 96; k++) v[k] = x[k * 1024 + threadIdx.x];
  __syncthreads();
  for (int k = 0; k < 96; k++) x[(k * 1024 + threadIdx.x) ^ 1] = v[k] * v[95 - k];
}
"""
    text = (folder / "0.cu").read_text().replace('extern "C" int', spills + 'extern "C" int', 1)
    text += "\nvoid use_wide(float *x) { wide<<<1, 1024>>>(x); }\n"
    (folder / "1.cu").write_text(text)
    work = tmp_path / "work"
    work.mkdir()
    tools = Toolchain(work, H200)
    tools.drivers()
    tools.subject(case, folder)
    assert tools.candidate(case, folder, 0).exists()
    with pytest.raises(Failed, match=r"wide: .* bytes of registers are spilled"):
        tools.candidate(case, folder, 1)
    assert tools.plain(ROOT / "benchmarks/gpu/limits.cu").exists()
    assert tools.plain(ROOT / "benchmarks/gpu/peers/cublas.cu", "-ldl").exists()


# --------------------------------------------------------------------------- points


def test_points_are_different_and_have_the_default_first(tmp_path: Path) -> None:
    made, _ = prepare([BY_NAME["matmul_1024"]], tmp_path, H200, 12)
    (case,) = made.cases
    assert len(case.points) == 13
    texts = [(tmp_path / case.name / f"{k}.cu").read_text() for k in range(13)]
    codes = {t[t.index("*/") :] for t in texts}
    assert len(codes) == 13
    assert any(run.distance(p, case.points[0]) == 1 for p in case.points[1:])
    other, _ = prepare([BY_NAME["matmul_1024"]], tmp_path / "again", H200, 12)
    assert other == made


# --------------------------------------------------------------------------- peers


def answers(tmp_path: Path, body: str, seconds: float = 20) -> dict[str, list[float] | str]:
    """Of a peer whose process runs ``body`` for every case."""
    script = tmp_path / "peer.py"
    script.write_text("import json, os, sys, time\nfor line in sys.stdin:\n    case = json.loads(line)['case']\n" + body)
    cases = [planned("a"), planned("b"), planned("c"), planned("other", operation="")]
    return dict(peers.ask("pytorch", [sys.executable, str(script)], cases, seconds, tmp_path))


def test_a_peer_answers(tmp_path: Path) -> None:
    body = "    print('chatter'); print(json.dumps({'case': case, 'ms': [1.0, 2.0]}), flush=True)\n"
    found = answers(tmp_path, body)
    assert found == {"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [1.0, 2.0], "other": "none"}


def test_a_peer_that_crashes_goes_on_behind_it(tmp_path: Path) -> None:
    body = "    if case == 'b': os.abort()\n    print(json.dumps({'case': case, 'ms': [1.0]}), flush=True)\n"
    found = answers(tmp_path, body)
    assert (found["a"], found["c"]) == ([1.0], [1.0])
    assert str(found["b"]).startswith("ends with")


def test_a_peer_that_is_not_there(tmp_path: Path) -> None:
    found = answers(tmp_path, "    print(json.dumps({'problem': 'missing: torch'})); break\n")
    assert found == {"a": "missing: torch", "b": "missing: torch", "c": "missing: torch", "other": "none"}
    gone = peers.ask("pytorch", [str(tmp_path / "nothing")], [planned("a")], 5, tmp_path)
    assert "nothing" in str(gone["a"])


def test_a_peer_that_takes_too_long_keeps_what_it_has(tmp_path: Path) -> None:
    body = "    if case == 'b': time.sleep(60)\n    print(json.dumps({'case': case, 'ms': [1.0]}), flush=True)\n"
    found = answers(tmp_path, body, 2)
    assert found["a"] == [1.0]
    assert "takes longer" in str(found["b"])
    assert found["c"] == "no time"


def test_what_peers_are_asked() -> None:
    cases = [planned("m", "gemm", (2, 3, 4)), planned("j", "jacobi3d", (2, 3, 4)), planned("p", "")]
    assert peers.lines("cublas", cases) == {"m": "m gemm 2 3 4"}
    assert set(peers.lines("triton", cases)) == {"m", "j"}


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/gpu/peers").glob("*.py")), ids=lambda p: p.name)
def test_peers_are_python(path: Path) -> None:
    compile(path.read_text(), str(path), "exec")


# --------------------------------------------------------------------------- tables


def test_a_row() -> None:
    result = Result(planned("dot"), {0: 4.0, 3: 2.0}, peers={"cublas": 3.0}, why={"triton": "missing"})
    text = table.table([result, Result(planned("lost"), problem="no")], Limits(copy=32e3, peak=1e30))
    row, lost = text.splitlines()[1:3]
    assert row.split() == ["dot", "4", "2", "1.6e-05", "GB/s", "50%", "copy", "1.50", "-", "-", "2/0"]
    assert lost.split() == ["lost", *["-"] * 8]


def test_arithmetic_counts_where_it_bounds() -> None:
    assert table.rate(planned("x"), 2.0, Limits(copy=1e30, peak=1.0)) == "4e-12 TFLOP/s"
    assert table.bound(planned("x"), Limits(copy=1e30, peak=1.0)) == (8.0, "FMA")


def test_what_was_measured_longer_counts() -> None:
    result = Result(planned("x"), {0: 4.0, 1: 1.0, 2: 2.0}, {0: 4.0, 1: 3.0})
    assert (result.best, result.times[1]) == (1, 3.0)


def test_a_plan_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"version": 0}')
    with pytest.raises(Unusable, match="another version"):
        plan.read(tmp_path)
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(Unusable, match="--prepare"):
        plan.read(tmp_path)
