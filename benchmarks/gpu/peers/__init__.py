"""What the cases are compared with: each in a process of its own, which answers all cases.

    cublas    ``cublas.cu``: single precision without TF32, called as a program in C would
    pytorch   ``torch_calls.py``: what one would call there (cuBLAS, cuDNN)
    triton    ``triton_kernels.py``: kernels written by hand

A peer gets a line for each case and answers with a line of JSON: {"case": NAME, "ms": [...]} or, for what
it has not or cannot, {"case": NAME, "problem": WHY}.  Inputs are its own, random ones; what nothing is
installed for is a dash.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.build import Failed, run
from benchmarks.gpu.plan import Planned

NAMES = ("cublas", "pytorch", "triton")
MODULES = {"pytorch": "torch_calls", "triton": "triton_kernels"}
OF_CUBLAS = ("dot", "gemv", "gemm", "bmm")
HERE = Path(__file__).parent
_FIND = """
import glob, os, sys
for folder in sys.path:
    for name in ("libcublasLt.so*", "libcublas.so*"):
        for path in sorted(glob.glob(os.path.join(folder, "nvidia", "**", "lib", name), recursive=True)):
            print(path)
"""


def command(name: str, program: Path | None, python: str, flush: int, device: str = "cuda") -> list[str]:
    """How a peer is started; ``program`` is that of cuBLAS."""
    if name == "cublas":
        assert program is not None
        return [str(program), str(flush), *_libraries(python)]
    return [python, str(HERE / "serve.py"), MODULES[name], str(flush), device]


def _libraries(python: str) -> list[str]:
    """Where cuBLAS may be: where the loader looks, in the toolkit, in the packages of a Python."""
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64", "libcublas.so")
    known = ["libcublas.so.13", "libcublas.so.12", "libcublas.so", str(toolkit)]
    try:
        said, _ = run([python, "-c", _FIND], 30)
    except Failed:
        return known
    return known + [path for path in said.split("\n") if Path(path).name.startswith("libcublas.so")]


def lines(name: str, cases: Sequence[Planned]) -> dict[str, str]:
    """What a peer is asked, by case."""
    if name == "cublas":
        return {c.name: " ".join([c.name, c.operation, *map(str, c.extents)])
                for c in cases if c.operation in OF_CUBLAS}  # fmt: skip
    asked = {c.name: {"case": c.name, "operation": c.operation, "extents": c.extents} for c in cases}
    return {c: json.dumps(line) for c, line in asked.items() if line["operation"]}


def ask(
    name: str, words: Sequence[str], cases: Sequence[Planned], seconds: float, work: Path
) -> Mapping[str, list[float] | str]:
    """Milliseconds of every case, or why there are none.

    A process that ends early is begun again behind its case.
    """
    asked = lines(name, cases)
    found: dict[str, list[float] | str] = {c.name: "none" for c in cases if c.name not in asked}
    ends = time.monotonic() + seconds
    while asked and time.monotonic() < ends:
        with tempfile.TemporaryFile("w+", dir=work) as output:
            problem = ""
            try:
                run(words, ends - time.monotonic(), "".join(f"{x}\n" for x in asked.values()), output)
            except Failed as failed:
                problem = str(failed)
            output.seek(0)
            answers = [row for row in map(_row, output) if row is not None]
        for row in answers:
            if "case" not in row:  # of all
                return {**found, **dict.fromkeys(asked, str(row.get("problem", "no answer")))}
            found[str(row["case"])] = row["ms"] if "ms" in row else str(row["problem"])
            asked.pop(str(row["case"]), None)
        if asked and problem:
            found[next(iter(asked))] = problem
            del asked[next(iter(asked))]
        elif asked:
            break
    return {**found, **dict.fromkeys(asked, "no time")}


def _row(line: str) -> dict[str, list[float] | str] | None:
    try:
        row = json.loads(line)
    except ValueError:  # libraries print what they like
        return None
    return row if isinstance(row, dict) else None
