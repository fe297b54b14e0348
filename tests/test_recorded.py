"""Lock, proof, replay and near machines through the command line, on one tuned nest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click.testing
import pytest

from mdh_lift import cli
from tuning import lock, nearest, store

ROOT = Path(__file__).parent.parent
SOURCE = """\
void matvec(int n, int m, float w[restrict n], float M[restrict n][m], float v[restrict m])
{
#pragma mdh sizes(n=200, m=300)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            w[i] += M[i][k] * v[k];
}
"""
COMMAND = ("--", "old-gcc", "-O2")
SEARCH = ("--budget", "2ev", "--seed", "3")
WRAPPER = '#!/bin/sh\necho "$*" >> "$OLD_GCC_LOG"\nexec gcc "$@"\n'
# the command on a machine with other cores, vectors and caches
ELSEWHERE = """
import dataclasses
import lowering.machine
import tuning.fingerprint
other = lowering.machine.Machine("nehalem", 7, 16, 16, 1 << 14, 1 << 17, 1 << 21)
lowering.machine.this_machine = lambda: other
facts = dataclasses.replace(tuning.fingerprint.machine(), microarchitecture="nehalem", threads=7, caches=())
tuning.fingerprint.machine = lambda: facts
from mdh_lift.cli import main
main()
"""


def mdh_lift(tree: Path, *arguments: str, elsewhere: bool = False, compiler: bool = True, seed: str = "0"):
    """The command in a project, by default with the compiler that measured."""
    path = [str(tree.parent / "bin")] if compiler else []
    start = ["-c", ELSEWHERE] if elsewhere else ["-m", "mdh_lift"]
    return subprocess.run(
        [sys.executable, *start, *arguments, *COMMAND],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive", "PYTHONHASHSEED": seed,
            "PATH": os.pathsep.join([*path, os.environ["PATH"]]), "OLD_GCC_LOG": str(tree.parent / "log"),
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of one nest that was tuned; nobody changes it."""
    place = tmp_path_factory.mktemp("tuned")
    tree = place / "tree"
    tree.mkdir()
    (place / "bin").mkdir()
    wrapper = place / "bin" / "old-gcc"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    (tree / "mdh-lift.toml").write_text("schema = 1\n")
    (tree / "f.c").write_text(SOURCE)
    done = mdh_lift(tree, "tune", *SEARCH, "f.c")
    assert (tree / lock.NAME).exists(), done.stderr
    return tree


@pytest.fixture
def tree(tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that project, to work in."""
    shutil.copytree(tuned.parent, tmp_path / "copy")
    tree = tmp_path / "copy" / "tree"
    monkeypatch.chdir(tree)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tree.parent / "bin"), os.environ["PATH"]]))
    monkeypatch.setenv("OLD_GCC_LOG", str(tree.parent / "log"))
    return tree


def here(*arguments: str) -> click.testing.Result:
    """The command in this process, where it runs nothing."""
    done = click.testing.CliRunner().invoke(cli.cli, [*arguments, *COMMAND])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def record_of(tree: Path):
    with store.Store(tree / ".mdh-lift" / "tune.sqlite", create=False) as database:
        return database.searches()[-1]


def block_of(tree: Path) -> dict[str, object]:
    (machines,) = lock.read(tree / lock.NAME)["nests"].values()
    ((_, classes),) = machines.items()
    return dict(classes["m=300,n=200"])


def test_the_lock_says_all(tuned: Path) -> None:
    block, record = block_of(tuned), record_of(tuned)
    assert block["record"] == record.id and record.finished
    assert (block["strategy"], block["budget"], block["seed"]) == ("greedy", "2ev", 3)
    assert block["configuration"].keys() == {"point", "machine"}
    assert block["configuration"]["point"] == record.winning_point
    assert block["configuration"]["machine"].keys() >= {"cores", "vector_bytes", "registers", "l1", "l2", "l3"}
    assert block["text_hash"] == record.locked_text
    assert block["verification"].keys() >= {"sizes", "max_ulp", "outcome", "cases"}
    assert block["versions"].keys() >= {"mdh-lift", "compiler", "islpy", "kernel-tuner"}
    assert block["speedup"].keys() == {"median", "low", "high", "confidence"}
    assert record.nest == "f.c::matvec::0" and [s.ordinal for s in record.steps] == list(range(len(record.steps)))


def test_replays_are_identical_everywhere(tree: Path, tuned: Path) -> None:
    """Three runs, hash seeds, another machine, without the compiler that measured: lock, code and SARIF."""
    made = []
    for k, (elsewhere, compiler) in enumerate([(False, True), (False, False), (True, False)]):
        (tree / lock.NAME).unlink()
        (tree / "f.c").write_text(SOURCE)
        settings = {"elsewhere": elsewhere, "compiler": compiler, "seed": str(k * 7 + 1)}
        sarif = mdh_lift(tree, "--format", "sarif", "tune", "--replay", *SEARCH, "f.c", **settings)
        first = (tree / lock.NAME).read_bytes()
        spliced = mdh_lift(tree, "-w", "--force", "--replay", *SEARCH, "f.c", **settings)
        assert spliced.returncode == 0, spliced.stderr
        assert (tree / lock.NAME).read_bytes() == first
        made.append((first, (tree / "f.c").read_bytes(), sarif.stdout))
    assert made[0] == made[1] == made[2]
    assert made[0][0] == (tuned / lock.NAME).read_bytes()
    assert b"mdh-lift begin matvec" in made[0][1]
    assert json.loads(made[0][2])["version"] == "2.1.0"
    assert record_of(tree) == record_of(tuned)  # a replay records nothing


def test_replay_says_what_is_missing(tree: Path) -> None:
    def told(*arguments: str) -> str:
        done = here("tune", "--replay", *arguments, "f.c")
        assert done.exit_code == 1 and "error[MDH523]" in done.stderr, done.stderr
        return done.stderr

    before = (tree / lock.NAME).read_bytes()
    assert "budget 9ev" in told("--budget", "9ev", "--seed", "3")
    assert "no finished search" in told(*SEARCH, "--fingerprint", "linux-x86_64-other-1of1t-00000000")
    (tree / "f.c").write_text(SOURCE.replace("+=", "-="))
    assert "no finished search" in told(*SEARCH)
    (tree / "f.c").write_text(SOURCE)
    with store.Store(tree / ".mdh-lift" / "tune.sqlite") as database, database.changing() as connection:
        connection.execute("UPDATE searches SET winner_text = 'other'")
    assert "other code" in told(*SEARCH)
    shutil.rmtree(tree / ".mdh-lift")
    assert "no database" in told(*SEARCH)
    assert not (tree / ".mdh-lift").exists()
    assert (tree / lock.NAME).read_bytes() == before


def test_replay_of_one_of_several_machines(tree: Path) -> None:
    own = record_of(tree)
    with store.Store(tree / ".mdh-lift" / "tune.sqlite") as database, database.changing() as connection:
        connection.execute("UPDATE searches SET fingerprint = 'linux-x86_64-zen9-9of9t-00000000', token = '', record = 'x'")
    with store.Store(tree / ".mdh-lift" / "tune.sqlite") as database:
        database.merge([own])
    (tree / lock.NAME).unlink()
    mine = here("tune", "--replay", *SEARCH, "f.c")  # this machine's
    assert "MDH523" not in mine.stderr
    assert list(lock.read(tree / lock.NAME)["nests"]["f.c::matvec::0"]) == [own.fingerprint]
    other = mdh_lift(tree, "tune", "--replay", *SEARCH, "f.c", elsewhere=True)
    assert "zen9" in other.stderr and "--fingerprint" in other.stderr and "MDH523" in other.stderr
    named = ("--fingerprint", "linux-x86_64-zen9-9of9t-00000000")
    mdh_lift(tree, "tune", "--replay", *SEARCH, *named, "f.c", elsewhere=True)
    assert "linux-x86_64-zen9-9of9t-00000000" in lock.read(tree / lock.NAME)["nests"]["f.c::matvec::0"]


def test_locked_and_frozen(tree: Path) -> None:
    before = (tree / lock.NAME).read_bytes()
    log = tree.parent / "log"
    log.unlink()
    for words in (["tune", "--locked"], ["tune", "--frozen"], ["tune", "--replay", "--locked", *SEARCH]):
        done = here(*words, "f.c")
        assert "error" not in done.stderr, done.stderr
    frozen = mdh_lift(tree, "--frozen", "--force", "-w", "f.c")
    assert frozen.returncode == 0, frozen.stderr
    assert b"mdh-lift begin matvec" in (tree / "f.c").read_bytes()
    assert (tree / lock.NAME).read_bytes() == before
    for line in log.read_text().splitlines():  # the preprocessor and the version, nothing else
        assert "-E" in line.split() or "--version" in line.split(), line
    for words in (["verify", "f.c"], ["bench", "f.c"], ["doctor"], ["emit", "--device", "this", "f.c"]):
        refused = here("--frozen", *words)
        assert refused.exit_code == 2 and "--frozen" in refused.stderr


def test_locked_names_what_would_change(tree: Path) -> None:
    def refused(*arguments: str) -> str:
        source, locked = (tree / "f.c").read_bytes(), (tree / lock.NAME).read_bytes()
        done = here(*arguments, "f.c")
        assert done.exit_code == 1 and "error[MDH520]" in done.stderr, done.stderr
        assert ((tree / "f.c").read_bytes(), (tree / lock.NAME).read_bytes()) == (source, locked)
        return done.stderr

    whole = lock.read(tree / lock.NAME)
    ((name, classes),) = whole["nests"]["f.c::matvec::0"].items()
    (tree / "f.c").write_text("/* a comment that moves the lines */\n" + SOURCE)
    assert here("tune", "--locked", "f.c").exit_code == 0
    (tree / "f.c").write_text(SOURCE.replace("M[i][k]", "2 * M[i][k]"))
    assert "another version of the nest" in refused("tune", "--locked")
    assert "another version of the nest" in refused("--locked", "-w", "--force")
    (tree / "f.c").write_text(SOURCE)
    classes["m=300,n=200"]["text_hash"] = "0"
    lock.write(tree / lock.NAME, whole)
    assert "other code is generated" in refused("splice", "-w", "--locked")
    assert "text_hash" in refused("tune", "--locked", "--replay", *SEARCH)
    whole["nests"]["f.c::matvec::0"] = {"linux-x86_64-zen9-9of9t-00000000": classes}
    lock.write(tree / lock.NAME, whole)
    assert f"no entry for this machine and size ({name}" in refused("tune", "--frozen")
    lock.write(tree / lock.NAME, lock.empty())
    assert "no entry" in refused("tune", "--locked")


def test_frozen_says_what_proof_is_missing(tree: Path) -> None:
    with store.Store(tree / ".mdh-lift" / "tune.sqlite") as database, database.changing() as connection:
        connection.execute("DELETE FROM searches")
    done = here("--frozen", "--force", "-w", "f.c")
    assert done.exit_code == 1 and "error[MDH522]" in done.stderr and str(block_of(tree)["record"]) in done.stderr
    shutil.rmtree(tree / ".mdh-lift")
    gone = here("splice", "--frozen", "--force", "-w", "f.c")
    assert gone.exit_code == 1 and "error[MDH522]" in gone.stderr and "no database" in gone.stderr
    assert (tree / "f.c").read_text() == SOURCE


def test_a_lock_with_a_conflict_is_told(tree: Path) -> None:
    text = "<<<<<<< HEAD\n" + (tree / lock.NAME).read_text()
    (tree / lock.NAME).write_text(text)
    for words in (["splice"], ["tune", "--locked"], ["tune", "--replay", *SEARCH]):
        done = here(*words, "f.c")
        assert done.exit_code == 2 and "error[MDH511]" in done.stderr and "both sides" in done.stderr, done.stderr
    assert (tree / lock.NAME).read_text() == text


def test_the_choice_of_a_similar_machine_is_verified_here(tree: Path) -> None:
    whole = lock.read(tree / lock.NAME)
    ((_, classes),) = whole["nests"]["f.c::matvec::0"].items()
    classes["m=300,n=200"]["configuration"]["point"]["block_i"] = 24
    whole["nests"]["f.c::matvec::0"] = {f"linux-{os.uname().machine}-zen9-9of9t-00000000": classes}
    lock.write(tree / lock.NAME, whole)
    shutil.rmtree(tree / ".mdh-lift")
    done = mdh_lift(tree, "--format", "json", "tune", "--budget", "0", "f.c")
    data = json.loads(done.stdout)
    (nest,) = data["nests"]
    assert nest["configuration"]["block_i"] == 24
    assert nest["verification"]["outcome"] == "ok" and nest["verification"]["handled"] > 0
    (warning,) = [d for d in nest["diagnostics"] if d["code"] == "MDH613"]
    assert warning["severity"] == "warning" and "zen9" in warning["message"]
    machines = lock.read(tree / lock.NAME)["nests"]["f.c::matvec::0"]
    assert len(machines) == 2
    assert {c["m=300,n=200"]["strategy"] for c in machines.values()} == {"greedy", "nearest"}


def test_nonsense_from_elsewhere_is_not_taken(tree: Path) -> None:
    """Another machine's choice that gives no code: the cost model's is taken, and nobody is told of the other."""
    whole = lock.read(tree / lock.NAME)
    ((_, classes),) = whole["nests"]["f.c::matvec::0"].items()
    classes["m=300,n=200"]["configuration"]["point"]["block_i"] = "x"
    whole["nests"]["f.c::matvec::0"] = {f"linux-{os.uname().machine}-zen9-9of9t-00000000": classes}
    lock.write(tree / lock.NAME, whole)
    shutil.rmtree(tree / ".mdh-lift")
    done = mdh_lift(tree, "--format", "json", "tune", "--budget", "0", "f.c")
    (nest,) = json.loads(done.stdout)["nests"]
    assert nest["configuration"]["block_i"] != "x" and nest["verification"]["outcome"] == "ok"
    assert "MDH613" not in done.stdout
    machines = lock.read(tree / lock.NAME)["nests"]["f.c::matvec::0"]
    assert {c["m=300,n=200"]["strategy"] for c in machines.values()} == {"greedy", "model"}


def test_splice_leaves_a_lock_that_fits_alone(tree: Path) -> None:
    before, records = (tree / lock.NAME).read_bytes(), record_of(tree)
    done = mdh_lift(tree, "splice", "-w", "--force", "f.c")
    assert done.returncode == 0 and b"mdh-lift begin" in (tree / "f.c").read_bytes(), done.stderr
    assert (tree / lock.NAME).read_bytes() == before and record_of(tree) == records


def test_a_search_starts_from_a_similar_machine(tree: Path) -> None:
    """Beside the default it is what a search of two evaluations tries; nonsense is left out."""
    whole = lock.read(tree / lock.NAME)
    ((_, classes),) = whole["nests"]["f.c::matvec::0"].items()
    point = classes["m=300,n=200"]["configuration"]["point"]
    point["block_i"] = 24
    whole["nests"]["f.c::matvec::0"] = {f"linux-{os.uname().machine}-zen9-9of9t-00000000": classes}
    lock.write(tree / lock.NAME, whole)
    shutil.rmtree(tree / ".mdh-lift")
    done = mdh_lift(tree, "-v", "tune", *SEARCH, "f.c")
    assert "info[MDH614]" in done.stderr and "zen9" in done.stderr, done.stderr
    assert point in [s.point for s in record_of(tree).steps[:2]]


# --------------------------------------------------------------------------- nearness


def kind(fingerprint: str, **caches: int) -> nearest.Kind:
    found = nearest.kind_of(fingerprint, caches)
    assert found is not None
    return found


def test_the_nearest_machine() -> None:
    here = kind("linux-x86_64-icelake-8of16t-11111111", l1=48 << 10, l2=1280 << 10)
    ordered = [
        kind("linux-x86_64-icelake-8of16t-22222222", l1=48 << 10, l2=1280 << 10),  # another compiler
        kind("linux-x86_64-icelake-8of16t-22222222", l1=32 << 10, l2=1280 << 10),
        kind("linux-x86_64-icelake-4of4t-22222222", l1=48 << 10, l2=1280 << 10),
        kind("linux-x86_64-cascadelake-8of16t-22222222", l1=48 << 10, l2=1280 << 10),
        kind("linux-x86_64-nehalem-8of16t-22222222", l1=48 << 10, l2=1280 << 10),
        kind("linux-x86_64-unheard_of-8of16t-22222222", l1=48 << 10, l2=1280 << 10),
    ]
    far = [nearest.distance(here, k) for k in ordered]
    assert None not in far and far == sorted(far) and len(set(far)) == len(far)  # type: ignore[type-var]
    for other in ("linux-aarch64-icelake-8of16t-1", "darwin-x86_64-icelake-8of16t-1", "linux-x86_64-icelake-8of16t-cuda-1"):
        assert nearest.distance(here, kind(other)) is None
    assert nearest.kind_of("somewhere") is None
    assert kind("linux-x86_64-icelake-8of16t-cuda-1").target == "cuda"
    assert "icelake, 8 threads" in here.words
