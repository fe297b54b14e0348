"""Short forms of the campaigns in which calls fail or kill: every file old or new, nothing lost, nothing left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("scene", "step"), [("splice of several again", 1), ("tune", 4), ("first tune", 9), ("output", 1)]
)
def test_calls_that_fail(scene: str, step: int) -> None:
    told = run("campaigns.failing", "--short", "--scene", scene, "--step", str(step))
    runs = re.search(r"(\d+) runs with a failing call, 0 of them wrong", told)
    assert runs is not None, told
    assert int(runs[1]) >= 5, told


@pytest.mark.parametrize(("scene", "step"), [("splice of several again", 3), ("tune", 12)])
def test_kills(scene: str, step: int) -> None:
    told = run("campaigns.kills", "--count", "1", "--scene", scene, "--step", str(step))
    kills = re.search(r"(\d+) kills, 0 faults", told)
    assert kills is not None, told
    assert int(kills[1]) >= 10, told
