"""How long ``mdh-lift check`` takes: start-up, a long file with five nests, growth with the number of nests.

    python -m benchmarks.check [--rounds 5]

Prints medians of the wall time of whole processes, and of the processor time that they used.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NEST = """
void kernel_{n}(int n, int m, float a[n][m], float b[n][m], float *s)
{{
#pragma mdh
    for (int i = 1; i < n - 1; i++) {{
        float sum = 0;
        for (int j = {k}; j < m; j++)
            sum += a[i - 1][j] * b[i + 1][j - {k}] + {n}.0f;
        s[i] = sum;
    }}
}}
"""
OTHER = """
static int other_{n}(int x)
{{
    int y = x + {n};
    for (int i = 0; i < 10; i++)
        y = y * 3 + (y >> 2);
    return y;
}}
"""


def text(nests: int, lines: int = 0) -> str:
    out = "".join(NEST.format(n=n, k=n % 5) for n in range(nests))
    extra = 0
    while out.count("\n") < lines:
        out += OTHER.format(n=extra)
        extra += 1
    return out


def measured(source: str, rounds: int) -> tuple[float, float]:
    """Median wall and processor seconds of ``check`` on a file."""
    walls, used = [], []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file.c"
        path.write_text(source)
        command = [sys.executable, "-m", "mdh_lift", "check", str(path)]
        for _ in range(rounds):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True)
            walls.append(time.perf_counter() - start)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            assert done.returncode in (0, 1), done.stderr
    return statistics.median(walls), statistics.median(used)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{'file':<34}{'wall s':>8}{'cpu s':>8}")
    cases = [("no nest", text(0, 5)), ("2000 lines, 5 nests", text(5, 2000))]
    cases += [(f"{n} nests", text(n)) for n in (1, 10, 50, 100, 200)]
    for name, source in cases:
        wall, used = measured(source, rounds)
        print(f"{name:<34}{wall:8.3f}{used:8.3f}")


if __name__ == "__main__":
    main()
