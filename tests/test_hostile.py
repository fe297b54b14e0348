"""Programs that try to do harm: each is labelled rightly, nothing is changed, nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.hostile import KINDS, Kind, answer, subject_and_candidate, workbench
from tuning import processes, runner
from tuning.processes import kill_marked
from tuning.runner import Workbench


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    with workbench() as made:
        yield made


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_kind(bench: Workbench, kind: Kind) -> None:
    found = answer(bench, kind, 0.4 if kind.label == "timed_out" else 10)
    assert found.right(kind), (found.outcome, found.harm)


def test_another_runtime_of_openmp() -> None:
    """Clang's opens shared memory for writing when it starts: that is no harm."""
    body = "#pragma omp parallel for reduction(+:s)\nfor (size_t k = 0; k < n; k++) s += x[k] * y[k];"
    kinds = [Kind("right", "ok", body), Kind("forks", "forbidden", "fork();", reason="clone")]
    with workbench("clang") as bench:
        for kind in kinds:
            before = set(os.listdir("/dev/shm"))
            found = answer(bench, kind, 10)
            assert found.right(kind), (found.outcome, found.harm)
            deadline = time.monotonic() + 60  # other tests run such programs as well
            while {n for n in set(os.listdir("/dev/shm")) - before if n.startswith("__KMP")}:
                assert time.monotonic() < deadline, "the runtime's shared memory is left"
                time.sleep(0.1)


def test_system_calls_are_filtered_here(bench: Workbench) -> None:
    """On the machines of the tests the kernel can; elsewhere the campaign would show less."""
    subject, candidate = subject_and_candidate(Kind("right", "ok"), Path("/nowhere"), "0")
    text = runner.case_text(0, "verify", subject, {"n": 7}, {"threads": 1})
    assert text is not None
    ended = bench.run(bench.build(subject, candidate).data["program"], [text])
    assert ended.ok
    assert {"confined": 1} in ended.data["lines"]


def test_who_left_session_and_parent_is_found(tmp_path: Path) -> None:
    """What ends daemons where system calls are not filtered, as with drivers of GPUs."""
    # the parent waits, as its end is that of its group, which the child must have left by then
    code = "import os, sys, time\nif os.fork():\n    while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    code += "    os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    code += "open(sys.argv[1] + '.tmp', 'w').write(str(os.getpid()))\n"
    code += "os.rename(sys.argv[1] + '.tmp', sys.argv[1])\ntime.sleep(60)\n"
    note = tmp_path / "pid"
    env = processes.environment(("PATH",), str(tmp_path))
    daemon = [sys.executable, "-c", code, str(note)]
    assert processes.run_process(daemon, cwd=str(tmp_path), env=env, seconds=20).status == 0
    assert kill_marked(str(tmp_path / "other")) == 0
    assert kill_marked(str(tmp_path)) == 1
    status = Path("/proc", note.read_text(), "stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_directories_of_dead_processes_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    kept = ["mdh-lift-abc", f"mdh-lift-{os.getpid()}-x1", "other", "mdh-lift-1-x1"]
    for name in (*kept, f"mdh-lift-{dead.pid}-x1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec").write_text("")
    (tmp_path / f"mdh-lift-{dead.pid}-link").symlink_to(tmp_path / "other")
    assert processes.sweep() == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted((*kept, f"mdh-lift-{dead.pid}-link"))
    assert (tmp_path / "other" / "spec").exists()
    cache = runner.Cache(tmp_path / "cache")
    (cache.root / f"tmp-{dead.pid}-x1").mkdir()
    (cache.root / f"tmp-{os.getpid()}-x1").mkdir()
    cache.prune()
    assert [p.name for p in cache.root.iterdir()] == [f"tmp-{os.getpid()}-x1"]


def test_the_cache_is_looked_through_at_times_only(tmp_path: Path) -> None:
    cache = runner.Cache(tmp_path / "cache")
    stamp = tmp_path / "cache.pruned"
    dead = subprocess.Popen(["true"])
    dead.wait()

    def pruned(age: float | None) -> bool:
        """With the last time so many seconds ago."""
        left = cache.root / f"tmp-{dead.pid}-x1"
        left.mkdir(exist_ok=True)
        if age is not None:
            os.utime(stamp, (time.time() - age,) * 2)
        cache.prune_at_times()
        return not left.exists()

    assert pruned(None)
    assert not pruned(0) and not pruned(runner.PRUNE_INTERVAL - 60)
    assert pruned(runner.PRUNE_INTERVAL + 60)
    assert not pruned(0)
    assert pruned(-3600)  # the clock was set back
