"""The whole way for every program of the corpus, as a user goes it.

``mdh-lift FILE -w`` on a copy; the file compiled by plain ``gcc -O3 -fopenmp`` passes its own check, with and
without ``-DMDH_LIFT_OFF``; ``revert -w`` gives the original bytes back.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from frontend_c.preprocess import CompileCommand
from frontend_c.read import read
from lifter.lift import LiftedNest, lift
from mdh_core.rules import verify
from mdh_core.source import SourceFile
from tests.lifting import step_lines, wanted_steps

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "corpus"
MANIFEST = tomllib.loads((CORPUS / "manifest.toml").read_text())["program"]
SOURCES = sorted({p["source"] for p in MANIFEST if "refused" not in p})
SOME_AT_A_TIME = [SOURCES[k : k + 4] for k in range(0, len(SOURCES), 4)]


def _run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    return subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=300, env=environment
    )


def _mdh_lift(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return _run(sys.executable, "-m", "mdh_lift", *arguments, cwd=cwd)


def _passes(source: Path, *flags: str) -> None:
    """The program compiles without a warning and passes its own check."""
    program = source.with_suffix("")
    built = _run(
        "gcc", "-std=gnu11", "-O3", "-fopenmp", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", *flags,
        source, "-o", program, "-lm",
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[:3000]
    ran = _run(program)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@functools.cache
def _nests(source: str) -> dict[str, LiftedNest]:
    text = SourceFile(source, (CORPUS / source).read_bytes())
    lifted = [lift(nest) for nest in read(text, CompileCommand(directory=str(CORPUS))).nests]
    for x in lifted:
        assert [problem for p in x.programs for problem in verify(p)] == []
    return {x.nest.name.split("::", 1)[1]: x for x in lifted}


@pytest.mark.parametrize("program", MANIFEST, ids=lambda p: p["name"])
def test_lifts_to_the_steps_of_the_manifest(program: dict) -> None:  # type: ignore[type-arg]
    found = _nests(program["source"])[f"{program['function']}::{program['nest']}"]
    if "refused" in program:
        assert (found.status, found.diagnostics[0].code) == ("refused", program["refused"])
    else:
        assert found.status == "lifted"
        assert step_lines(found.program) == wanted_steps(program)


@pytest.mark.parametrize("sources", SOME_AT_A_TIME, ids="+".join)
def test_spliced_files_pass_their_own_checks(sources: list[str], tmp_path: Path) -> None:
    """Several files by one command, which starts once for all of them."""
    before = {source: (CORPUS / source).read_bytes() for source in sources}
    for source, data in before.items():
        (tmp_path / source).write_bytes(data)
    # speed is no matter here and the machine is shared: --force splices what is verified, fast or not
    done = _mdh_lift(*sources, "-w", "--force", "--budget", "0", cwd=tmp_path)
    assert done.returncode in (0, 1, 4), done.stdout + done.stderr  # 4: too noisy to say how much faster
    assert "MDH7" not in done.stderr and "MDH9" not in done.stderr, done.stderr
    for source in sources:
        spliced = (tmp_path / source).read_bytes()
        count = sum(p["source"] == source for p in MANIFEST)
        assert spliced.count(b"mdh-lift begin") == 2 * count, source + done.stdout + done.stderr
        _passes(tmp_path / source)
        _passes(tmp_path / source, "-DMDH_LIFT_OFF")
    again = _mdh_lift("check", *sources, cwd=tmp_path)
    assert "MDH5" not in again.stdout + again.stderr
    reverted = _mdh_lift("revert", "-w", *sources, cwd=tmp_path)
    assert reverted.returncode in (0, 1), reverted.stderr
    assert {source: (tmp_path / source).read_bytes() for source in sources} == before
