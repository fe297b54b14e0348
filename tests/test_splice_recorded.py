"""`splice` and `--frozen` put in place what is recorded as verified: exactly that text, and nothing is run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click.testing
import pytest

from mdh_core.diagnostics import CODES
from mdh_lift import cli
from tests.gpu_emitted import has_opencl_device
from tuning import lock
from tuning.accelerator import stated
from tuning.devices import nvidia_models
from tuning.store import Store

ROOT = Path(__file__).parent.parent
SOURCE = """\
void matvec(int n, int m, float w[restrict n], float M[restrict n][m], float v[restrict m])
{
#pragma mdh sizes(n=120, m=90)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            w[i] += M[i][k] * v[k];
}
"""
CLASSES = """\
void rows(int n, const int *restrict a, int *restrict s)
{
#pragma mdh sizes(n=8) sizes(n=60)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            s[i] += a[i * n + k];
}
"""
SUM = """\
void rowsum(int n, int m, double *restrict s, const double (*restrict a)[m])
{
#pragma mdh target(opencl) sizes(n=40, m=30)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            s[i] += a[i][k];
}
"""
PROGRAMS = ("cc", "gcc", "clang", "nvcc")
SEARCH = ("--budget", "2ev", "--seed", "3")
needs_opencl = pytest.mark.skipif(not has_opencl_device(), reason="there is no OpenCL device")


def mdh_lift(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, with compilers that log how they are called."""
    return subprocess.run(
        [sys.executable, "-m", "mdh_lift", *arguments],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive",
            "PATH": os.pathsep.join([str(tree.parent / "bin"), os.environ["PATH"]]),
        },
    )  # fmt: skip


def here(tree: Path, *arguments: str) -> click.testing.Result:
    """The same in this process, for what runs nothing."""
    path = os.pathsep.join([str(tree.parent / "bin"), os.environ["PATH"]])
    with contextlib.chdir(tree), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        done = click.testing.CliRunner().invoke(cli.cli, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def project(place: Path, text: str) -> Path:
    tree = place / "tree"
    tree.mkdir()
    (place / "bin").mkdir()
    for name in PROGRAMS:
        real = shutil.which(name)
        if real is not None:
            wrapper = place / "bin" / name
            wrapper.write_text(f'#!/bin/sh\necho "{name} $*" >> {place}/log\nexec {real} "$@"\n')
            wrapper.chmod(0o755)
    (tree / "mdh-lift.toml").write_text("schema = 1\n")
    (tree / "f.c").write_text(text)
    return tree


def started(tree: Path) -> list[str]:
    """Calls of compilers that are neither the preprocessor nor a question for the version."""
    log = tree.parent / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if not {"-E", "--version"} & set(line.split())]


def copied(made: Path, to: Path) -> Path:
    shutil.copytree(made.parent, to / "copy")
    (to / "copy" / "log").unlink(missing_ok=True)
    for wrapper in (to / "copy" / "bin").iterdir():
        wrapper.write_text(wrapper.read_text().replace(f"{made.parent}/log", f"{to}/copy/log"))
    return to / "copy" / "tree"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One nest, tuned; nobody changes it."""
    tree = project(tmp_path_factory.mktemp("tuned"), SOURCE)
    done = mdh_lift(tree, "tune", *SEARCH, "f.c")
    assert (tree / lock.NAME).exists(), done.stderr
    assert started(tree), "the log misses what is compiled"
    return tree


@pytest.fixture
def tree(tuned: Path, tmp_path: Path) -> Path:
    return copied(tuned, tmp_path)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A nest with two classes of sizes, tuned; nobody changes it."""
    tree = project(tmp_path_factory.mktemp("classes"), CLASSES)
    done = mdh_lift(tree, "tune", *SEARCH, "f.c")
    assert (tree / lock.NAME).exists(), done.stderr
    return tree


def changed(tree: Path, statement: str, *values: str) -> None:
    """A change of the database."""
    with Store(tree / ".mdh-lift" / "tune.sqlite") as database, database.changing() as connection:
        connection.execute(statement, values)


def refused(tree: Path, code: str, *words: str) -> str:
    """What is told where nothing is spliced; nothing was started and nothing written."""
    before = {p.name: p.read_bytes() for p in tree.iterdir() if p.is_file()}
    done = here(tree, "splice", "-w", *words, "f.c")
    assert done.exit_code == max(1, CODES[code].exit_status), done.stderr
    assert f"[{code}]" in done.stderr, done.stderr
    assert {p.name: p.read_bytes() for p in tree.iterdir() if p.is_file()} == before
    assert not started(tree)
    return done.stderr


def test_tune_then_splice_compiles_nothing(tree: Path) -> None:
    before = (tree / lock.NAME).read_bytes()
    printed = here(tree, "splice", "--force", "f.c")
    assert printed.exit_code == 1 and "+++ b/f.c" in printed.stdout, printed.stderr
    assert (tree / "f.c").read_text() == SOURCE
    done = here(tree, "splice", "-w", "--force", "f.c")
    assert done.exit_code == 0 and "mdh-lift begin matvec" in (tree / "f.c").read_text(), done.stderr
    assert "verified:" in done.stdout and "certificate:" in done.stdout and "speedup:" in done.stdout
    assert (tree / lock.NAME).read_bytes() == before
    assert not started(tree)
    assert not {p.name for p in tree.iterdir()} - {"f.c", "mdh-lift.toml", lock.NAME, ".mdh-lift"}
    assert here(tree, "check", "f.c").exit_code == 0
    spliced = (tree / "f.c").read_bytes()
    assert here(tree, "splice", "-w", "--force", "f.c").exit_code == 0
    assert (tree / "f.c").read_bytes() == spliced


def test_no_candidate_is_started(tree: Path) -> None:
    """Every program that runs, by strace: the preprocessor and questions for versions."""
    trace = tree.parent / "trace"
    words = ["strace", "-f", "-qq", "-s", "999", "-e", "trace=execve", "-e", "status=successful", "-o", str(trace)]
    done = subprocess.run(
        [*words, sys.executable, "-m", "mdh_lift", "splice", "-w", "--force", "f.c"],
        cwd=tree, capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *others = [line for line in trace.read_text().splitlines() if "execve(" in line]
    assert "mdh_lift" in first and others
    for line in others:
        assert '"-E"' in line or '"--version"' in line or "/cc1" in line or '"uname"' in line, line
    assert not any("-fopenmp" in line for line in others)


def test_slow_code_is_spliced_by_force_only(tree: Path) -> None:
    """Of what was measured: the interval is compared with the ratio that is asked for now."""
    assert "1e+06 x is asked for" in refused(tree, "MDH603", "--min-speedup", "1000000")
    changed(tree, "UPDATE searches SET pairs = ?", json.dumps([[4.0, 1.0]] * 9))
    done = here(tree, "splice", "-w", "f.c")
    assert done.exit_code == 0 and "4.00 x" in done.stdout, done.stderr


def test_wrong_code_is_never_spliced(tree: Path) -> None:
    """Of whatever run and size it is recorded."""
    with Store(tree / ".mdh-lift" / "tune.sqlite") as database:
        (record,) = [r for r in database.searches() if r.winner]
    changed(
        tree, "UPDATE steps SET outcome = 'wrong_result', reason = 'w[3] differs' WHERE text_hash = ?",
        record.winner_text,
    )  # fmt: skip
    assert "w[3] differs" in refused(tree, "MDH701", "--force")


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE searches SET locked_text = '0'", "other code is generated now"),
        ("UPDATE searches SET winner_text = '0'", "other code is generated now"),
        ("UPDATE searches SET fingerprint = 'linux-x86_64-zen9-9of9t-0'", "other machines, flags or targets"),
        ("UPDATE searches SET target = 'cuda'", "other machines, flags or targets"),
        ("UPDATE searches SET source_hash = '0'", "it changed since it was tuned"),
        ("UPDATE searches SET size_class = 'n=7'", "at these sizes (m=90,n=120)"),
        ("UPDATE searches SET strategy = 'verify'", "compared, but not measured"),
        ("UPDATE searches SET record = ''", "at these sizes"),  # killed before its end
        ("DELETE FROM searches", "it was not tuned"),
    ],
)
def test_a_record_counts_for_exactly_this_code(tree: Path, statement: str, why: str) -> None:
    changed(tree, statement)
    words = () if "verify" in statement else ("--force",)
    told = refused(tree, "MDH525", *words)
    assert why in told and "--> f.c:3" in told, told
    assert "`mdh-lift tune f.c`" in told and "`mdh-lift -w f.c`" in told


def test_the_lock_file_alone_is_no_proof(tree: Path) -> None:
    shutil.rmtree(tree / ".mdh-lift")
    assert "no database" in refused(tree, "MDH525", "--force")
    assert "--target opencl f.c" in refused(tree, "MDH525", "--target", "opencl")
    assert "--style outline f.c" in refused(tree, "MDH525", "--style", "outline")


def test_another_nest_or_style_needs_its_own_record(tree: Path) -> None:
    assert "other code is generated now" in refused(tree, "MDH525", "--force", "--style", "outline")
    (tree / "f.c").write_text(SOURCE.replace("M[i][k] *", "2 * M[i][k] *"))
    assert "it changed since it was tuned" in refused(tree, "MDH525", "--force")
    (tree / "f.c").write_text("// moved\n" + SOURCE)
    assert here(tree, "splice", "-w", "--force", "f.c").exit_code == 0


def test_the_main_job_records_what_splice_takes(tmp_path: Path) -> None:
    """Without ``-w`` nothing is written, the lock file neither; the same diff is written afterwards."""
    tree = project(tmp_path, SOURCE)
    shown = mdh_lift(tree, "--force", "--budget", "0", "f.c")
    assert "+++ b/f.c" in shown.stdout and not (tree / lock.NAME).exists()
    (tree.parent / "log").unlink()
    again = here(tree, "splice", "--force", "f.c")
    assert again.stdout[again.stdout.index("--- a") :] == shown.stdout[shown.stdout.index("--- a") :]
    assert here(tree, "splice", "-w", "--force", "f.c").exit_code == 0
    assert not started(tree)
    (machines,) = lock.read(tree / lock.NAME)["nests"].values()
    ((_, blocks),) = machines.items()
    assert blocks["m=90,n=120"]["strategy"] == "model"
    assert here(tree, "check", "f.c").exit_code == 0


def test_bench_makes_a_lock_file_s_choice_known_here(tree: Path) -> None:
    """A lock file from elsewhere: `verify` compares, `bench` measures as well, and then it is spliced."""
    shutil.rmtree(tree / ".mdh-lift")
    before = (tree / lock.NAME).read_bytes()
    assert "verified:" in mdh_lift(tree, "bench", "f.c").stdout
    (tree.parent / "log").unlink()
    assert here(tree, "splice", "-w", "--force", "f.c").exit_code == 0
    assert not started(tree)
    assert (tree / lock.NAME).read_bytes() == before
    assert here(tree, "revert", "-w", "f.c").exit_code == 0
    frozen = here(tree, "--frozen", "--force", "-w", "f.c")
    assert frozen.exit_code == 0 and "mdh-lift begin" in (tree / "f.c").read_text(), frozen.stderr
    rows = json.loads(here(tree, "db", "list", "--format", "json").stdout)["nests"]
    assert [row["searches"] for row in rows] == [0], "to look again is no search"


@pytest.mark.parametrize("words", [("--budget", "3ev"), ("--replay",), ("--nearest",), ("--no-resume",)])
def test_options_of_a_search_are_refused(tree: Path, words: tuple[str, ...]) -> None:
    done = here(tree, "splice", *words, "f.c")
    assert done.exit_code == 2 and f"mdh-lift FILE -w {words[0].replace('no-', '')}" in done.stderr


def test_only_what_is_known_of_a_file_is_written(tree: Path) -> None:
    (tree / "f.c").write_text(SOURCE + SOURCE.replace("matvec", "other"))
    done = here(tree, "splice", "-w", "--force", "f.c")
    assert done.exit_code == 1 and done.stderr.count("[MDH525]") == 1 and "`other::0`" in done.stderr
    text = (tree / "f.c").read_text()
    assert "mdh-lift begin matvec" in text and "mdh-lift begin other" not in text


# --------------------------------------------------------------------------- several classes of sizes


def test_classes_splice_freeze_and_replay_alike(classes: Path, tmp_path: Path) -> None:
    """`splice`, `--frozen` and `--replay` give the same bytes, with a kernel for each class, and run nothing."""
    made = []
    for words in (["splice", "-w"], ["--frozen", "-w"], ["--replay", *SEARCH, "-w"], ["splice", "--locked", "-w"]):
        tree = copied(classes, tmp_path / words[-2].strip("-") / words[0].strip("-"))
        done = here(tree, *words, "--force", "f.c")
        assert done.exit_code == 0, (words, done.stderr)
        assert not started(tree)
        made.append(((tree / "f.c").read_bytes(), (tree / lock.NAME).read_bytes()))
    assert len(set(made)) == 1
    assert made[0][1] == (classes / lock.NAME).read_bytes()
    assert b"rows_0_mdh_1(" in made[0][0] or b"rows_0_mdh(" in made[0][0]


def test_classes_are_replayed_into_the_lock(classes: Path, tmp_path: Path) -> None:
    tree = copied(classes, tmp_path)
    (tree / lock.NAME).unlink()
    done = here(tree, "tune", "--replay", *SEARCH, "f.c")
    assert "MDH5" not in done.stderr, done.stderr
    assert (tree / lock.NAME).read_bytes() == (classes / lock.NAME).read_bytes()
    assert "MDH5" not in here(tree, "tune", "--replay", "--locked", *SEARCH, "f.c").stderr


def test_classes_that_were_not_run_together(classes: Path, tmp_path: Path) -> None:
    tree = copied(classes, tmp_path)
    changed(tree, "DELETE FROM searches WHERE strategy = 'joint'")
    why = "several classes of sizes were not compared as a whole"
    assert why in refused(tree, "MDH525", "--force")
    for words, code in ((["--frozen"], "MDH522"), (["--replay", *SEARCH], "MDH523")):
        done = here(tree, *words, "--force", "-w", "f.c")
        assert done.exit_code == 1 and f"[{code}]" in done.stderr and why in done.stderr, done.stderr
    assert (tree / "f.c").read_text() == CLASSES and not started(tree)


# --------------------------------------------------------------------------- GPUs


@needs_opencl
def test_opencl_is_spliced_without_asking_for_the_device(tmp_path: Path) -> None:
    tree = project(tmp_path, SUM)
    mdh_lift(tree, "tune", "--budget", "0", "f.c")
    (tree.parent / "log").unlink()
    done = here(tree, "splice", "-w", "--force", "f.c")
    assert done.exit_code == 0 and (tree / "f_opencl_mdh.c").exists(), done.stderr
    text = (tree / "f.c").read_text()
    assert here(tree, "revert", "-w", "f.c").exit_code == 0
    frozen = here(tree, "--frozen", "--force", "-w", "f.c")
    assert frozen.exit_code == 0 and (tree / "f.c").read_text() == text, frozen.stderr
    assert here(tree, "revert", "-w", "f.c").exit_code == 0
    assert not started(tree)
    changed(tree, "UPDATE searches SET versions = replace(versions, '\"device\": \"', '\"device\": \"another ')")
    assert "no record for opencl is of this processor" in refused(tree, "MDH525", "--force")


def test_a_stated_accelerator_has_the_fingerprint_of_one_that_was_asked() -> None:
    by = stated("cuda", ("gcc",), "release 12.4", "NVIDIA H200", exact=True)
    assert (by.version, by.device) == ("release 12.4", "NVIDIA H200")
    assert by.compile[1:] == ("-O3", "-arch=native", "-Xptxas", "-v", "-fmad=false")


def test_what_the_driver_s_files_say(tmp_path: Path) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\n")
    assert nvidia_models(tmp_path) == ["NVIDIA H200"]
    assert nvidia_models(tmp_path / "none") == []
