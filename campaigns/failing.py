"""Every call that touches a file fails once, in turn: disk full, no permission, I/O error, interrupted, ...

    python -m campaigns.failing [--short] [--scene NAME] [--step N]

For each writing verb (``campaigns/faults.py``) and each call of it that touches a file below its directory,
the call fails: once, or it and all later ones, or after half of a write.  Then the exit status is 0, 1 or 2
(2 with a diagnostic), no traceback is printed, every file is the old or the new one, nothing strange is left,
the database has its records, and the next run puts all in order.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import re
import sys
from collections import Counter
from pathlib import Path

from campaigns import faults
from campaigns.faults import FROM_THEN_ON, HALF_WRITE, ONCE, Ended, Scene

ERRORS = {
    "disk full": (errno.ENOSPC, ONCE),
    "disk full from then on": (errno.ENOSPC, FROM_THEN_ON),
    "disk full in a write": (errno.ENOSPC, HALF_WRITE),
    "I/O error": (errno.EIO, ONCE),
    "I/O error from then on": (errno.EIO, FROM_THEN_ON),
    "no permission": (errno.EACCES, ONCE),
    "not permitted": (errno.EPERM, ONCE),
    "interrupted": (errno.EINTR, ONCE),
    "read-only": (errno.EROFS, FROM_THEN_ON),
    "over quota": (errno.EDQUOT, ONCE),
}
SHORT = ("disk full",)


def wrong(scene: Scene, directory: Path, ended: Ended, persistent: bool) -> list[str]:
    """What should not be after a verb in which a call failed."""
    found = []
    if ended.status not in (0, 1, 2):
        found.append(f"exit status {ended.status}")
    if "Traceback" in ended.text or "MDH901" in ended.text:
        found.append("a traceback")
    if ended.status == 2 and not re.search(r"MDH\d{3}|Error: ", ended.text):
        found.append("exit status 2 without a diagnostic")
    if ended.status in (0, 1) and scene.content(directory).get("f.c") != scene.after["f.c"]:
        found.append(f"exit status {ended.status}, but the source is not written")
    found += faults.faults_now(scene, directory)
    left = faults.strange(scene, directory)
    if left and not persistent and not ended.call.startswith(("unlink", "link", "rmdir")):
        found.append(f"left: {sorted(left)}")
    return found


def campaign(library: ctypes.CDLL, names: list[str], only: str, step: int) -> int:
    bad = total = 0
    statuses: Counter[int] = Counter()
    with faults.quick_directory() as place:
        base = Path(place).resolve()
        directory, workshop = base / "tree", base / "workshop"
        workshop.mkdir()
        for scene in faults.scenes(workshop):
            if only and scene.name != only:
                continue
            calls = scene.count(library, directory)
            for what in names:
                number, mode = ERRORS[what]
                for at in range(1, calls + 1, step):
                    scene.restore(directory)
                    ended = scene.trial(library, directory, at, number, mode)
                    found = wrong(scene, directory, ended, mode == FROM_THEN_ON)
                    found += faults.faults_later(library, scene, directory)
                    total += 1
                    statuses[ended.status] += 1
                    if found:
                        bad += 1
                        print(f"WRONG {scene.name}, {what} at call {at} ({ended.call}): {'; '.join(found)}")
                        print(re.sub("(?m)^", "    ", ended.text.strip()[-700:]))
            print(f"{scene.name}: {calls} calls x {len(names)} ways to fail", flush=True)
    ended_with = ", ".join(f"{n} with {s}" for s, n in sorted(statuses.items()))
    print(f"{total} runs with a failing call, {bad} of them wrong; exit statuses: {ended_with}")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.failing", description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--scene", default="")
    parser.add_argument("--step", type=int, default=1, help="only every so many calls")
    chosen = parser.parse_args()
    library = faults.preloaded("campaigns.failing")
    return campaign(library, list(SHORT if chosen.short else ERRORS), chosen.scene, chosen.step)


if __name__ == "__main__":
    sys.exit(main())
