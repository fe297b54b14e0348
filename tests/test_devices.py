"""Descriptions of devices and what ptxas reports: recorded answers, and the real programs where they can run."""

from __future__ import annotations

import doctest
import shutil
import sys
from pathlib import Path

import pytest

from lowering.device import DEVICES, H100, Device
from tests.gpu_emitted import has_opencl_device
from tuning import accelerator, devices, ptxas
from tuning.ptxas import Resources, parsed, report, why_not

SPILLS = """
static __global__ void __launch_bounds__(1024, 2)
wide(float *x)
{
  float v[96];
  for (int k = 0; k < 96; k++) v[k] = x[k * 1024 + threadIdx.x];
  __syncthreads();
  for (int k = 0; k < 96; k++) x[(k * 1024 + threadIdx.x) ^ 1] = v[k] * v[95 - k];
}
static __global__ void __launch_bounds__(128, 1)
narrow(float *x) { __shared__ float t[64]; t[threadIdx.x % 64] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = t[0]; }
extern "C" void both(float *x) { wide<<<1, 1024>>>(x); narrow<<<1, 128>>>(x); }
"""


@pytest.mark.parametrize("module", [devices, ptxas])
def test_examples(module: object) -> None:
    done = doctest.testmod(module)  # type: ignore[arg-type]
    assert done.attempted > 0
    assert done.failed == 0


def test_no_compiler_and_no_driver_is_no_device(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    assert devices.cuda_device(missing, missing) is None
    assert devices.opencl_devices(missing) == []


def test_a_program_that_fails_is_no_device(tmp_path: Path) -> None:
    fails = tmp_path / "nvcc"
    fails.write_text("#!/bin/sh\necho '{\"name\": 1}'\nexit 1\n")
    fails.chmod(0o755)
    assert devices.cuda_device(str(fails), str(fails)) is None


def test_a_device_that_only_nvidia_smi_knows(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA A100-SXM4-80GB, 81920, 8.0'\n")
    smi.chmod(0o755)
    found = devices.cuda_device(str(tmp_path / "nothing"), str(smi))
    assert found is not None
    assert (found.memory, found.processors, found.arch) == (80 << 30, 108, "sm_80")


def test_unknown_device_of_a_known_vendor() -> None:
    found = devices.described_by_name("NVIDIA Something 1, 8192, 12.0\nNVIDIA Something 2, 1, 12.0")
    assert found is not None
    assert (found.name, found.memory, found.arch) == ("NVIDIA Something 1", 8 << 30, "sm_120")


def test_opencl_devices_of_this_machine() -> None:
    if not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    found = devices.opencl_devices()
    assert found
    for device in found:
        assert device.name
        assert device.block_threads >= 1
        assert device.processors >= 1
        assert device.memory > 1 << 20
        assert device.shared >= 1 << 10
    assert devices.this_device("opencl") == found[0]
    assert devices.this_device("opencl", len(found)) is None


@pytest.mark.parametrize("name", DEVICES)
def test_named(name: str) -> None:
    assert devices.device_named(name, "cuda") is DEVICES[name]


def test_the_cuda_program_compiles(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    (tmp_path / "query.cu").write_text(devices.CUDA_PROGRAM)
    assert devices._run(["nvcc", "-c", str(tmp_path / "query.cu"), "-o", str(tmp_path / "q.o")], 120) is not None


# --------------------------------------------------------------------------- ptxas


def test_registers_and_spills_of_two_kernels(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    (tmp_path / "two.cu").write_text(SPILLS)
    found = report(tmp_path / "two.cu", "sm_90")
    assert set(found) == {"wide", "narrow"}
    assert found["wide"].spilled > 0
    assert found["wide"].threads == 1024
    assert (found["narrow"].spilled, found["narrow"].threads, found["narrow"].shared) == (0, 128, 256)
    assert 0 < found["narrow"].registers < 64
    said = why_not(found, H100)
    assert said is not None and said.startswith("wide: ") and said.endswith("spilled")
    assert why_not({"narrow": found["narrow"]}, H100) is None


def test_a_file_that_does_not_compile_says_why(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    (tmp_path / "bad.cu").write_text("__global__ void k() { nothing(); }\n")
    with pytest.raises(ValueError, match="nothing"):
        report(tmp_path / "bad.cu", "sm_90")
    with pytest.raises(FileNotFoundError):
        report(tmp_path / "bad.cu", "sm_90", nvcc=str(tmp_path / "nvcc"))


def test_kernels_whose_names_contain_each_other() -> None:
    lines = []
    for name, registers in (("_Z7f_0_mdhPf", 8), ("_ZL12f_0_mdh_0_11Pf", 16), ("_Z10f_0_mdh_0_1Pf", 24)):
        lines.append(f"ptxas info    : Compiling entry function '{name}' for 'sm_90'")
        lines.append(f"ptxas info    : Used {registers} registers")
    source = "".join(f"__global__ void __launch_bounds__(32, 1)\n{n}(float *x)\n" for n in ("f_0_mdh_0_1", "f_0_mdh_0_11"))
    found = parsed("\n".join(lines).replace("10f_0", "11f_0"), source)
    assert found["f_0_mdh_0_11"].registers == 16
    assert found["f_0_mdh_0_1"].registers == 24


def test_functions_that_kernels_call_are_no_kernels() -> None:
    said = """ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'
ptxas info    : Function properties for _Z1kPf
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for _Z4helpf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers, 16 bytes cumulative stack size, 1024+256 bytes smem"""
    assert parsed(said) == {"_Z1kPf": Resources("_Z1kPf", 30, 12, 16, 1280)}


@pytest.mark.parametrize(
    "needs, word",
    [
        (Resources("k", 255, threads=256), None),
        (Resources("k", 256, threads=32), "registers of a thread"),
        (Resources("k", 65, threads=1024), "65 registers of 1024 threads"),
        (Resources("k", 64, threads=1024), None),
        (Resources("k", 32, threads=2048), "threads of a block"),
        (Resources("k", 32, shared=228 << 10), "shared memory"),
        (Resources("k", 32, spilled=4), "spilled"),
    ],
)
def test_limits_of_a_device(needs: Resources, word: str | None) -> None:
    said = why_not({"k": needs}, H100)
    assert (said is None) if word is None else (said is not None and word in said)


def test_a_smaller_device_takes_less() -> None:
    small = Device("small", registers=1 << 15)
    assert why_not({"k": Resources("k", 128, threads=256)}, small) is None
    assert why_not({"k": Resources("k", 136, threads=256)}, small) is not None


# --------------------------------------------------------------------------- which compiler


@pytest.mark.parametrize(("cudacxx", "nvcc", "command"), [
    (None, None, ("nvcc",)), ("", "", ("nvcc",)), (None, "/opt/nvcc -v", ("/opt/nvcc", "-v")),
    ("clang++ -x cuda", "/opt/nvcc", ("clang++", "-x", "cuda")),
])  # fmt: skip
def test_the_compiler_that_the_environment_names(
    cudacxx: str | None, nvcc: str | None, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CUDACXX", cudacxx), ("NVCC", nvcc)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert devices.nvcc_command() == command


def test_one_probe_asks_for_name_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the compiler that CUDACXX names, which compiles one program; what it says is what `doctor` tells."""
    log = tmp_path / "log"
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *"-c "*) echo "$*" >> {log};; esac\nexec {sys.executable} -m tuning.cuda_on_cpu "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(compiler))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    found = accelerator.with_limits(accelerator.accelerator("cuda", ("gcc",)))
    assert len(log.read_text().splitlines()) == 1
    assert found.limits is not None and found.device == found.limits.name == "CPU"
    assert (found.limits.arch, found.limits.processors) == ("sm_90", 132)
    assert devices.cuda_device(smi=str(tmp_path / "nothing")) == found.limits
