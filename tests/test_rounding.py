"""Loops that run as long as a floating-point value allows: each product is rounded by itself.

The iteration below is chaotic: two ways to round give other numbers of iterations for most starts, so that a
contracted product shows.
"""

from __future__ import annotations

import doctest
import json
import re
import subprocess
from pathlib import Path

import pytest

from mdh_core import rounding
from mdh_core.rounding import rounds_products
from tests.catalogue import EVERYTHING
from tests.test_improve import _file, _mdh_lift

STARTS = 4000
ESCAPES = f"""\
void escapes(int *restrict count)
{{
#pragma mdh
    for (int i = 0; i < {STARTS}; i++) {{
        double z = (i + 0.5) / {STARTS};
        int k = 0;
        while (k < 400 && z * z + 0.001 <= 4.0) {{
            z = z * z - 1.9999;
            k++;
        }}
        count[i] = k;
    }}
}}
"""
CONTRACTING = ("-O3", "-march=haswell", "-ffp-contract=fast", "-fopenmp", "-w")


def _assembly(text: str, directory: Path, *flags: str) -> str:
    (directory / "k.c").write_text(text)
    words = ["gcc", *CONTRACTING, *flags, "-S", str(directory / "k.c"), "-o", str(directory / "k.s")]
    subprocess.run(words, check=True)
    return (directory / "k.s").read_text()


def test_what_decides() -> None:
    assert doctest.testmod(rounding).failed == 0
    assert [name for name, p in EVERYTHING.items() if rounds_products(p)] == ["mandelbrot"]


def test_no_compiler_contracts_them(tmp_path: Path) -> None:
    """In vectors and behind them; where the macro is a plain product, both are contracted."""
    _file(tmp_path, ESCAPES)
    done = _mdh_lift(tmp_path, "emit", "f.c")
    assert done.returncode == 0, done.stderr
    text = done.stdout[done.stdout.index("/*") :]
    text = text[: text.index("\n}\n", text.index("_mdh(")) + 3].replace("static int", "int")
    kept = _assembly(text, tmp_path)
    assert re.search(r"vmulpd.*%ymm", kept) and re.search(r"vmulsd", kept)
    assert "vfm" not in kept and "vfnm" not in kept
    left = _assembly(text, tmp_path, "-DMDH_ROUNDED(type,...)=(__VA_ARGS__)")
    assert re.search(r"vfn?m\w+pd", left)


def test_a_search_accepts_what_was_rounded_that_way(tmp_path: Path) -> None:
    """With ``-march=native``: compilers contract the loop in vectors, and not as it is written."""
    _file(tmp_path, ESCAPES)
    compiler = ("--", "gcc", "-O3", "-march=native")
    done = _mdh_lift(tmp_path, "--format", "json", "tune", "f.c", "--budget", "6ev", *compiler)
    assert done.returncode in (0, 1, 4), done.stderr  # how much faster is no matter on a shared machine
    (nest,) = json.loads(done.stdout)["nests"]
    assert "wrong_result" not in nest["outcomes"] and nest["outcomes"]["ok"] > 0
    assert nest["configuration"]["vector"] == "i"
    assert nest["verification"]["against_O0"]


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_kernels_for_devices_are_compiled_without_contraction(target: str, tmp_path: Path) -> None:
    words = {"cuda": "-fmad=false", "opencl": "FP_CONTRACT OFF"}[target]
    for text, asked in ((ESCAPES, True), (ESCAPES.replace("z * z + 0.001 <= 4.0", "z != z"), True),
                        (ESCAPES.replace(" && z * z + 0.001 <= 4.0", ""), False)):  # fmt: skip
        _file(tmp_path, text)
        done = _mdh_lift(tmp_path, "emit", "f.c", "--target", target)
        assert done.returncode == 0, done.stderr
        assert (words in done.stdout) == asked
        assert "MDH_ROUNDED" not in done.stdout
