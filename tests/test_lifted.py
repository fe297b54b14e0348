"""Small nests with dependences and uneven bounds: what they lift to, and that it means the same.

The first lines of a file that begin with ``//! `` are the steps as the corpus's manifest writes them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend_c.preprocess import CompileCommand
from frontend_c.read import read
from lifter.lift import lift
from mdh_core.ir import Sequential
from mdh_core.rules import verify
from mdh_core.source import SourceFile
from tests.lifting import check_meaning, step_lines

FILES = sorted((Path(__file__).parent / "lifted").glob("*.c"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_lifted(path: Path) -> None:
    text = path.read_text()
    (nest,) = read(SourceFile(path.name, text.encode()), CompileCommand(directory=str(path.parent))).nests
    found = lift(nest)
    wanted = [line.removeprefix("//! ") for line in text.splitlines() if line.startswith("//! ")]
    assert step_lines(found.program) == wanted, found.diagnostics
    assert (found.status == "partial") == any(isinstance(s, Sequential) for s in found.program)
    assert all(verify(p) == [] for p in found.programs)
    assert check_meaning(found, 4) >= 3
