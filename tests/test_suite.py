"""Whole programs of a suite: built in copies, compared, timed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from mdh_lift import improve, scoreboard
from mdh_lift.cli import cli
from mdh_lift.config import Program, Suite
from mdh_lift.suite import agree, compared
from tests.port_fake import fake

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
static int scale(int n, float *restrict y) {
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 2 * y[i];
    return n;
}
int main(int argc, char **argv) {
    static float y[100];
    for (int i = 0; i < 100; i++) y[i] = i;
    scale(atoi(argv[1]), y);
    printf("y = %.3f\n", FACTOR * y[7]);
    return 0;
}
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("MDH_LIFT_CACHE_DIR", str(tmp_path / ".cache"))
    root = tmp_path / "tree"
    root.mkdir()
    (root / "p.c").write_text(MAIN.replace("FACTOR", "1"))
    (root / ".git").mkdir()
    (root / ".git" / "large").write_text("not copied")
    return root


def result(tree, text=None, compare="exact", run=("./p", "50"), build=("gcc", "p.c", "-o", "p"), seconds=60.0):
    program = Program("p", list(run), list(build), compare)
    changes = {} if text is None else {str((tree / "p.c").resolve()): text.encode()}
    found = compared(tree, program, Suite([program], 3, seconds), changes)
    assert sorted(p.name for p in tree.iterdir()) == [".git", "p.c"], "the tree itself was built in"
    return found


def test_the_same_output_is_timed(tree):
    found = result(tree, MAIN.replace("FACTOR", "1.0"))
    assert (found.result, found.reason) == ("same output", "")
    assert found.speedup.low <= found.speedup.median <= found.speedup.high
    assert 0 < found.before.median < 60 and 0 < found.after.median < 60


def test_another_output_is_told(tree):
    found = result(tree, MAIN.replace("FACTOR", "1.1"))
    assert found.result == "different output" and found.speedup is None
    assert found.reason == "line 1 of the output is `y = 15.400` instead of `y = 14.000`"


@pytest.mark.parametrize(
    "factor, compare, expected",
    [
        ("1.01", 0.1, "same output"),
        ("1.01", 1e-4, "different output"),
        ("1.01", ["true"], "same output"),
        ("1.00", ["false"], "failed"),  # not even the original agrees with itself
        ("1.01", ["cmp"], "different output"),
    ],
)
def test_how_outputs_are_compared(tree, factor, compare, expected):
    assert result(tree, MAIN.replace("FACTOR", factor), compare).result == expected


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"text": "int main(void) { return undefined; }"}, "build ended with exit status 1"),
        ({"run": ("./p",)}, "run ended with SIGSEGV"),
        ({"run": ("./absent",)}, "run `./absent`: No such file"),
        ({"run": ("sleep", "60"), "seconds": 0.5}, "run took longer than 0.5 s"),
        ({"run": ("date", "+%N")}, "two runs of the original print different things"),
    ],
)
def test_what_cannot_be_compared(tree, arguments, says):
    found = result(tree, **arguments)
    assert found.result == "failed" and says in found.reason and "/tmp" not in found.reason


def test_agreement_of_numbers():
    assert agree(b"a 1e3 nan b", b"a 1000.0 nan b", 0.0)
    assert not agree(b"a 1", b"b 1", 1.0) and not agree(b"1 2", b"1", 1.0)
    assert not agree(b"nan", b"1", 1.0) and not agree(b"1", b"-1", 0.5)


def test_port_compares_the_programs_of_its_suite(tree, monkeypatch):
    (tree / "mdh-lift.toml").write_text(
        "schema = 1\n[suite]\nrounds = 3\n[[suite.programs]]\nname = 'p'\nbuild = ['gcc', 'p.c', '-o', 'p']\n"
        "run = ['./p', '50']\ncompare = 1e-6\n[[suite.programs]]\nname = 'no'\nrun = ['./nothing']\n"
    )
    monkeypatch.chdir(tree)
    monkeypatch.setattr(improve, "improve", fake(str(tree / "log")))
    arguments = ["port", ".", "-w", "--summary", "s.json", "--", "gcc", "-O2"]
    found = CliRunner().invoke(cli, arguments)
    assert found.exit_code == 4, found.output
    board = scoreboard.read(tree / "s.json")
    assert [(p.name, p.result) for p in board.programs] == [("no", "failed"), ("p", "same output")]
    assert "Whole programs" in found.stdout and "1 failed, 1 same output" in found.stdout
    text = (tree / "p.c").read_text()
    assert text.count("mdh-lift begin") == 2 and not (tree / "p").exists()
    # spliced in an earlier run: the original is what it was before
    again = CliRunner().invoke(cli, arguments)
    assert again.exit_code == 4 and (tree / "p.c").read_text() == text
    assert "Whole programs" not in CliRunner().invoke(cli, ["port", ".", "-w", "--no-suite", "--", "gcc"]).stdout
    shown = CliRunner().invoke(cli, ["config", "--format", "json"])
    assert any(v["key"] == "suite.programs" and v["value"][0]["name"] == "p" for v in json.loads(shown.stdout)["values"])


def test_a_wrong_suite_is_told(tree, monkeypatch):
    monkeypatch.chdir(tree)
    for line in ("run = []", "run = ['p']\ncompare = 'roughly'", "run = 'p'", "run = ['p']\nspeed = 1"):
        (tree / "mdh-lift.toml").write_text(f"schema = 1\n[[suite.programs]]\nname = 'p'\n{line}\n")
        assert CliRunner().invoke(cli, ["port", "."]).exit_code == 2
