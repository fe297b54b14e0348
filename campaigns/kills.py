"""SIGKILL while files are written: at every system call in turn, in the middle of writes, at random.

    python -m campaigns.kills [--count N] [--seed S] [--scene NAME] [--step N]

Each kill hits a process that runs a writing verb (``campaigns/faults.py``).  Right afterwards every file is
the old or the new one, the lock file can be read and the database is whole and has its records; after the
same verb once more all files are what it makes, and nothing else is left.  A part of the kills hits a process
that puts one record after the other into a database: what it had said to be stored is there.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from campaigns import faults
from campaigns.faults import KILLS, ONCE, Scene
from tuning.store import Store


def at_calls(
    library: ctypes.CDLL, scene: Scene, directory: Path, counts: Counter[str], step: int = 1
) -> list[str]:
    """One kill before each call, one after each, one in the middle of each write."""
    found = []
    calls = scene.count(library, directory)
    for when, mode in KILLS.items():
        what = "in a write" if when == "in a write" else f"{when} a call"
        for at in range(1, calls + 1, step):
            scene.restore(directory)
            ended = scene.trial(library, directory, at, 0, mode)
            if ended.status != -9:
                if when != "in a write":
                    found.append(f"{scene.name}: not killed {when} call {at}: {ended}")
                continue
            counts[what] += 1
            found += _wrong(library, scene, directory, f"{when} call {at}", counts)
    return found


def _wrong(
    library: ctypes.CDLL, scene: Scene, directory: Path, where: str, counts: Counter[str]
) -> list[str]:
    found = faults.faults_now(scene, directory)
    left = faults.strange(scene, directory)
    counts["with temporary files or a journal left, which the next run removes"] += bool(left)
    found += faults.faults_later(library, scene, directory)
    return [f"{scene.name}, killed {where}: {fault}" for fault in found]


def at_random(
    library: ctypes.CDLL,
    scene: Scene,
    directory: Path,
    number: int,
    chance: random.Random,
    counts: Counter[str],
) -> list[str]:
    """Kills at times that are spread over the verb's duration."""
    scene.count(library, directory)
    spans = []
    for _ in range(3):
        scene.restore(directory)
        child = scene.start(library, directory, 0, 0, ONCE)
        child.ready()
        started = time.monotonic()
        child.wait()
        spans.append(time.monotonic() - started)
    found = []
    for _ in range(number):
        scene.restore(directory)
        child = scene.start(library, directory, 0, 0, ONCE)
        child.ready()
        time.sleep(chance.uniform(0, min(spans)))
        child.kill()
        ended = child.wait()
        counts["at a random moment" if ended.status == -9 else "too late"] += 1
        found += _wrong(library, scene, directory, "at a random moment", counts)
    return found


def of_records(
    library: ctypes.CDLL, directory: Path, number: int, chance: random.Random, counts: Counter[str]
) -> list[str]:
    """A writer says which record is stored and is killed; another process finds all it said."""
    found: list[str] = []
    directory.mkdir(exist_ok=True)
    path = directory / "records.sqlite"
    said = -1
    for _ in range(number):
        read_end, write_end = os.pipe()
        first = said + 1
        pid = os.fork()
        if not pid:
            try:
                at = chance.randrange(1, 60)
                with Store(path) as store:
                    library.fault_arm(os.fsencode(directory), at, 0, chance.choice(list(KILLS.values())))
                    for k in range(first, first + 20):
                        store.add(*faults._record(k))
                        os.write(write_end, f"{k}\n".encode())
            finally:
                os._exit(0)
        chance.random(), chance.random()
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            told = [int(line) for line in pipe.read().split()]
        _, status = os.waitpid(pid, 0)
        counts["while records are stored" if os.waitstatus_to_exitcode(status) == -9 else "too late"] += 1
        said = max([said, *told])
        with Store(path) as store:
            known = {r.configuration for r in store.all(faults._record(0)[0])}
        lost = {f"{{{k}}}" for k in range(said + 1)} - known
        found += [f"record {k} was said to be stored and is lost" for k in sorted(lost)]
        said = max(said, *(int(k[1:-1]) for k in known)) if known else said
    return found


def campaign(library: ctypes.CDLL, count: int, seed: int, only: str, step: int) -> int:
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    found: list[str] = []
    with faults.quick_directory() as place:
        base = Path(place).resolve()
        directory, workshop = base / "tree", base / "workshop"
        workshop.mkdir()
        chosen = [s for s in faults.scenes(workshop) if only in ("", s.name)]
        for scene in chosen:
            found += at_calls(library, scene, directory, counts, step)
            print(f"{scene.name}: {dict(counts)}", flush=True)
        if not only:
            found += of_records(library, base / "records", max(1, count // 10), chance, counts)
        rest = max(0, count - _kills(counts))
        for k, scene in enumerate(chosen):
            share = rest // len(chosen) + (k < rest % len(chosen))
            if share:
                found += at_random(library, scene, directory, share, chance, counts)
        while _kills(counts) < count:
            found += at_random(library, chance.choice(chosen), directory, 1, chance, counts)
    for fault in found:
        print("WRONG", fault)
    print(f"{_kills(counts)} kills, {len(found)} faults; {dict(counts)}")
    return 1 if found else 0


def _kills(counts: Counter[str]) -> int:
    ways = ("before a call", "after a call", "in a write", "at a random moment")
    return sum(counts[way] for way in (*ways, "while records are stored"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="at least so many kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scene", default="")
    parser.add_argument("--step", type=int, default=1, help="only every so many calls")
    chosen = parser.parse_args()
    return campaign(faults.preloaded("campaigns.kills"), chosen.count, chosen.seed, chosen.scene, chosen.step)


if __name__ == "__main__":
    sys.exit(main())
