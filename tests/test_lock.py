"""The lock file: several writers, merge conflicts, what is no lock file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.test_tuning import entry
from tuning import lock

ROOT = str(Path(__file__).parent.parent)
_WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from tests.test_tuning import entry
from tuning import lock
for k in range(10):
    lock.update(Path(sys.argv[1]), [entry(f"n={k}", nest=f"{sys.argv[2]}.c::f::0")])
    print(k, flush=True)
"""


def writer(path: Path, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _WRITER, str(path), name, ROOT]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / lock.NAME
    writers = [writer(path, f"w{k}") for k in range(4)]
    for w in writers:
        w.communicate(timeout=300)
    assert [w.returncode for w in writers] == [0] * 4
    nests = lock.read(path)["nests"]
    assert len(nests) == 4
    assert all(len(machines["machine"]) == 10 for machines in nests.values())
    assert os.listdir(tmp_path) == [lock.NAME]  # nothing beside it that version control would see


def test_a_killed_writer_leaves_a_lock_file(tmp_path: Path) -> None:
    path = tmp_path / lock.NAME
    for turn in range(3):
        killed = writer(path, f"k{turn}")
        assert killed.stdout is not None
        killed.stdout.readline()
        time.sleep(0.001 * turn)
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
        assert "n=0" in lock.read(path)["nests"][f"k{turn}.c::f::0"]["machine"]
        assert lock.update(path, [entry(f"n={turn}", nest="own.c::f::0")])  # it holds no lock


def test_a_lock_that_is_held_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / lock.NAME
    clock = iter(range(1000))
    with lock._only_writer(tmp_path), monkeypatch.context() as patched:
        patched.setattr(lock.time, "monotonic", lambda: 30.0 * next(clock))
        with pytest.raises(lock.LockError, match="another process"):
            lock.update(path, [entry()])
    assert lock.update(path, [entry()])


@pytest.mark.parametrize(
    ("text", "told", "advice"),
    [
        ("{\n<<<<<<< HEAD\n}\n=======\n}\n>>>>>>> other\n", "conflict in line 2", "both sides"),
        ('{"nests": {}, "schema_version": 2}', "schema version 2", "update"),
        ('{"nests": {"a": {"m": {"n": 3}}}, "schema_version": 1}', "`a`", "restore"),
        ('{"nests": {"a": 3}, "schema_version": 1}', "`a`", "restore"),
        ('{"nests": {"a": {"m": []}}, "schema_version": 1}', "`a`", "restore"),
        ("[" * 10**5, "not valid JSON", "restore"),
        ("", "not valid JSON", "restore"),
    ],
)
def test_what_is_no_lock_file_is_told(tmp_path: Path, text: str, told: str, advice: str) -> None:
    path = tmp_path / lock.NAME
    path.write_text(text)
    for use in (lambda: lock.read(path), lambda: lock.update(path, [entry()])):
        with pytest.raises(lock.LockError, match=told) as error:
            use()
        assert advice in error.value.help
    assert path.read_text() == text


def test_blocks_of_two_branches_merge(tmp_path: Path) -> None:
    """Entries of different nests: `git merge` has nothing to ask."""
    if subprocess.run(["git", "--version"], capture_output=True, check=False).returncode:
        pytest.fail("git is needed")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t"]
    path = tmp_path / lock.NAME
    subprocess.run([*git, "init", "-qb", "main"], check=True)
    lock.update(path, [entry(nest=f"{n}.c::f::0") for n in "bdfh"])

    def commit(branch: str, nest: str) -> None:
        if nest:
            subprocess.run([*git, "checkout", "-qb", branch, "main"], check=True)
            lock.update(path, [entry(nest=nest)])
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", branch], check=True)

    commit("main", "")
    commit("one", "c.c::f::0")
    commit("two", "g.c::f::0")
    subprocess.run([*git, "merge", "-q", "one", "-m", "both"], check=True, capture_output=True)
    assert [n[0] for n in lock.read(path)["nests"]] == list("bcdfgh")
    assert path.read_text() == lock.render(lock.read(path))


def test_what_differs_between_blocks() -> None:
    one, two = (lock.block_of(entry(seed=k)) for k in (0, 1))
    assert lock.changes(one, one) == []
    assert lock.changes(one, two) == ["seed"]
    assert lock.changes(None, two) == ["entry"]
    assert lock.changes({**one, "more": 1}, one) == ["more"]
    assert json.loads(json.dumps(one)) == one
