"""What a short run loads: time itself depends on the machine, what is loaded does not.

Most runs of ``check`` look at files without a directive, in hooks and editors; such a run must not wait for
what parses, lifts, generates or measures.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PLAIN = "int twice(int x)\n{\n    return 2 * x;\n}\n"
NEST = """\
void scale(int n, double x[n])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        x[i] *= 2.0;
}
"""
# what makes such a run slow, by its door (tests/test_imports.py) or its root
PARSES = {"pycparser", "frontend_c.read", "mdh_core.expr"}
LIFTS = {"islpy", "lifter.lift", "mdh_core.ir"}
REST = {"numpy", "jinja2", "kernel_tuner", "psutil", "archspec", "rich", "pygls", "lsprotocol", "sqlite3"}
REST |= {"emit.frames", "lowering.lower", "tuning.search", "frontend_py.read"}


def loaded(tmp_path, *arguments):
    """Modules that a run of the command has loaded at its end."""
    report = (
        "import atexit, sys; atexit.register(lambda: print('\\n'.join(sys.modules)));"
        "from mdh_lift.__main__ import main; sys.argv[0] = 'mdh-lift'; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", report, *arguments], cwd=tmp_path, text=True, capture_output=True, timeout=300,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    names = set(done.stdout.split())
    assert "mdh_lift.cli" in names
    return names


@pytest.mark.parametrize("arguments", [["--version"], ["codes"], ["explain", "MDH203"], ["check", "--help"]])
def test_what_reads_no_file_loads_neither_parser_nor_lifter(tmp_path, arguments):
    assert not loaded(tmp_path, *arguments) & (PARSES | LIFTS | REST)


def test_a_check_without_a_directive_loads_neither_parser_nor_lifter(tmp_path):
    (tmp_path / "plain.c").write_text(PLAIN)
    names = loaded(tmp_path, "check", "plain.c")
    assert "frontend_c.file" in names
    assert not names & (PARSES | LIFTS | REST)


def test_a_check_with_a_directive_loads_these_and_nothing_that_runs_code(tmp_path):
    (tmp_path / "nest.c").write_text(NEST)
    names = loaded(tmp_path, "check", "nest.c")
    assert names >= PARSES | {"lifter.lift"}
    assert not names & REST
