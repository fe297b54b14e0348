"""Random edits of a document, against the analysis that the language server keeps up to date.

    python -m campaigns.lsp [--edits 10000] [--seed 0] [--lines 2000] [--compare 25] [--trusted/--untrusted]
                            [--json FILE] [--speed]

Each edit goes to the analysing process as the server sends it.  Counted are deaths of that process, answers
that are internal errors, and, every so many edits, differences between what was kept up to date and a whole
new analysis.  ``--speed`` measures instead how long edits of one function take in a file of so many lines: in
the analysing process, and between the messages of an editor.
Exit status 1 if anything but 0 was counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from campaigns.lsp_client import Client
from mdh_lift.lsp.tasks import Tasks
from mdh_lift.lsp.values import Analysis, Answer, Request
from mdh_lift.lsp.worker import Limits, Stopped, Worker

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
_HEAD = "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#define SCALE 3\n"
_HEAD += "static double shared[64];\nstatic double twice(double x)\n{\n    return 2.0 * x;\n}\n"
_FUNCTIONS = (
    """\
/* Matrix multiplication {k}: größer. */
void gemm_{k}(int n, int m, int p, const double A[n][p], const double B[p][m], double C[n][m])
{{
#pragma mdh combine_ops(cc, cc, pw(+))
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            for (int k = 0; k < p; k++)
                C[i][j] += A[i][k] * B[k][j];
}}

""",
    """\
void stencil_{k}(int n, const double *a, double *b)
{{
#pragma mdh noalias(a, b) name(line)
    for (int i = 1; i < n - 1; i++)
        b[i] = twice(a[i - 1]) + SCALE * a[i] + shared[i % 64];
}}

int print_{k}(const double *x, int n)
{{
    double s = 0;
    for (int i = 0; i < n; i++) {{
        printf("%f\\n", x[i]);
        s += x[i];
    }}
    if (s > 10.0)
        fprintf(stderr, "too large: %g\\n", s);
    return s > 0;
}}

""",
    """\
double dot_{k}(int n, const double *x, const double *y)
{{
    double s = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        s += x[i] * y[i];
    return s;
}}

""",
)
_WORDS = (
    *"xi+-*/()[]{};,01n&'?:\"ü𝟙",
    *("int", "double", "&x", "/*", "*/", "//", "pw(", "0x", ".5e", "twice(", "shared", "SCALE"),
    *("#include", "return", "static", "struct", "goto", '_Pragma("mdh")'),
    *("\n", " ", "\r\n", "\t", "\f", "\x00", "\\\n", "while (1)", "typedef int n;"),
    *("for (int q = 0; q < n; q++)\n", "#if 1\n", "#endif\n", "#define n 7\n"),
    *("#pragma mdh\n", "#pragma mdh combine_ops(cc, pw(max))\n", "#pragma mdh fp(exact) target(cuda)\n"),
)  # fmt: skip


def program(lines: int, seed: int = 0) -> str:
    """A file of about so many lines, with a nest in most functions."""
    out, k, count = [_HEAD], seed, _HEAD.count("\n")
    while count < lines:
        out.append(_FUNCTIONS[k % len(_FUNCTIONS)].format(k=k))
        count += out[-1].count("\n")
        k += 1
    return "".join(out)


def edited(text: str, rng: random.Random) -> str:
    """The text after one edit of the kinds that people make, and a few that nobody does."""
    at = rng.randrange(len(text) + 1)
    kind = rng.random()
    if kind < 0.35:
        return text[:at] + rng.choice(_WORDS) + text[at:]
    if kind < 0.6:
        return text[:at] + text[at + rng.choice((1, 1, 1, 2, 5, 40)) :]
    if kind < 0.7:
        any_one = rng.choice((rng.randrange(32, 127), rng.randrange(1, 0x3000)))
        return text[:at] + chr(any_one) + text[at + 1 :]
    lines = text.split("\n")
    k = rng.randrange(len(lines))
    if kind < 0.8:
        lines.insert(rng.randrange(len(lines) + 1), lines[k])
    elif kind < 0.9:
        del lines[k]
    else:
        j = rng.randrange(len(lines))
        lines[k], lines[j] = lines[j], lines[k]
    return "\n".join(lines)


def edits(start: str, rng: random.Random, undo: float = 0.4) -> Iterator[str]:
    """Texts one edit apart; often the last edits are undone, so that the text stays a program."""
    history = [start]
    while True:
        if len(history) > 1 and (rng.random() < undo or len(history) > 12):
            del history[-rng.randrange(1, len(history)) :]
        else:
            history.append(edited(history[-1], rng))
        yield history[-1]


def starts() -> list[str]:
    """Files to begin with: generated ones, and some of the corpus."""
    names = ("gemm", "histo", "argmin", "exclusive_scan", "blur")
    found = [CORPUS / f"{n}.c" for n in names]
    return [program(60), program(120, 1), *(p.read_text("utf-8") for p in found if p.is_file())]


def difference(kept: Analysis, whole: Analysis) -> str:
    """The first thing that differs; empty where nothing does."""
    for name in ("findings", "nests"):
        a, b = getattr(kept, name), getattr(whole, name)
        missing = [x for x in b if x not in a]
        extra = [x for x in a if x not in b]
        if missing or extra:
            return f"{name}: missing {missing[:1]}, extra {extra[:1]}"
    return ""


async def campaign(
    count: int, seed: int, compare: int, trusted: bool, tell: Callable[[str], None]
) -> dict[str, object]:
    """The counts after so many edits."""
    rng = random.Random(seed)
    worker = Worker(Limits(seconds=120, restarts=10**9))  # a slow machine is no endless analysis
    counts: Counter[str] = Counter()
    worst, spent = 0.0, []
    problems: list[str] = []
    texts = starts()
    path = str(CORPUS / "edited.c")
    source = edits(texts[0], rng)
    for number in range(count):
        if number % 100 == 0:
            source = edits(texts[(number // 100) % len(texts)], rng)
        text = next(source).encode("utf-8", "surrogatepass")
        began = time.monotonic()
        try:
            answer: Answer = await worker.ask("analyse", path, text, trusted=trusted)
        except Stopped as stopped:
            counts["deaths"] += 1
            problems.append(str(stopped))
            continue
        spent.append(time.monotonic() - began)
        worst = max(worst, spent[-1])
        counts["edits"] += 1
        if answer.analysis is None:
            counts["internal errors"] += 1
            problems.append(answer.trace or answer.problem)
            continue
        counts["with nests"] += bool(answer.analysis.nests)
        counts["with findings"] += bool(answer.analysis.findings)
        if compare and number % compare == 0:
            counts["compared"] += 1
            whole = Tasks().analyse(Request(0, "analyse", path, text, trusted=trusted))
            different = difference(answer.analysis, whole)
            if different:
                counts["different"] += 1
                problems.append(different)
                Path(f"lsp-different-{seed}-{number}.c").write_bytes(text)
        if (number + 1) % 500 == 0:
            tell(f"{number + 1} edits, {dict(counts)}")
    await worker.close()
    return {
        **{k: counts[k] for k in ("edits", "deaths", "internal errors", "compared", "different")},
        **{k: counts[k] for k in ("with nests", "with findings")},
        "median seconds": round(statistics.median(spent), 4) if spent else 0.0,
        "worst seconds": round(worst, 3),
        "problems": problems[:10],
    }


def speed(lines: int, seed: int, rounds: int = 40) -> dict[str, object]:
    """Seconds from an edit in one function to the analysis, in the analysing process; and of the first.

    Also those that an editor sees, between its messages, and processor time, of this process and of those
    that it started, for machines that do other things.
    """
    rng = random.Random(seed)
    text = program(lines)
    tasks = Tasks()

    def seconds(t: str) -> tuple[float, float]:
        began, used = time.monotonic(), sum(os.times()[:4])
        tasks.answer(Request(0, "analyse", "/nowhere/a.c", t.encode(), trusted=True))
        return time.monotonic() - began, sum(os.times()[:4]) - used

    first = seconds(text)
    spent = []
    for k in range(rounds):
        at, new = _small_edit(text, rng, k)
        text = text[:at] + new + text[at:]
        spent.append(seconds(text))
    shown = list(_in_the_editor(text, rng, rounds))
    result: dict[str, object] = {"lines": text.count("\n"), "nests": text.count("#pragma mdh")}
    result["edit to diagnostics in an editor, median seconds"] = round(statistics.median(shown), 3)
    result["the same, 95 %"] = round(sorted(shown)[int(0.95 * len(shown))], 3)
    for k, kind in enumerate(("seconds", "processor seconds")):
        ordered = sorted(x[k] for x in spent)
        result |= {
            f"first, {kind}": round(first[k], 3),
            f"median, {kind}": round(statistics.median(ordered), 3),
            f"95 %, {kind}": round(ordered[int(0.95 * len(ordered))], 3),
        }
    return result


def _small_edit(text: str, rng: random.Random, k: int) -> tuple[int, str]:
    """Where something is put into one function, and what."""
    places = [m for m in range(len(text)) if text.startswith(("C[i][j] +=", "s += x[i]", "b[i] = "), m)]
    return rng.choice(places), rng.choice((f"/* {k} */", "n = n; ", ";"))


def _in_the_editor(text: str, rng: random.Random, rounds: int) -> Iterator[float]:
    """Seconds from the message of an edit to that of its diagnostics, with the wait for further edits."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "a.c")
        with Client([sys.executable, "-P", "-m", "mdh_lift", "lsp"], Path(directory)) as client:
            client.start(trusted=True)
            client.open(path, text)
            client.diagnostics(path, 1)
            for k in range(rounds):
                at, new = _small_edit(text, rng, k)
                line = text.count("\n", 0, at)
                place = (line, at - text.rfind("\n", 0, at) - 1)
                text = text[:at] + new + text[at:]
                began = time.monotonic()
                client.change(path, k + 2, place, new)
                client.diagnostics(path, k + 2)
                yield time.monotonic() - began
            client.stop()


def main() -> int:
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m campaigns.lsp", description=about)
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--compare", type=int, default=25, help="every so many edits; 0: never")
    parser.add_argument("--untrusted", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    if given.speed:
        result = speed(given.lines, given.seed)
    else:
        result = asyncio.run(
            campaign(given.edits, given.seed, given.compare, not given.untrusted,
                     lambda line: print(line, file=sys.stderr))
        )  # fmt: skip
    for name, value in result.items():
        print(f"{name}: {value}")
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=2) + "\n")
    return int(any(result.get(k) for k in ("deaths", "internal errors", "different")))


if __name__ == "__main__":
    sys.exit(main())
