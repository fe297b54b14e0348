"""Candidates and user's files that try to do harm, and what the tuner says of each.

    python -m campaigns.hostile [--rounds N] [--overhead N] [--compiler gcc]

Each kind is built and run as tuning does it.  A kind is *right* when its outcome has the label that stands
beside it and no harm was done: no file was changed, no process is left, and this process still runs.
``--overhead N``: what a run costs beyond the program itself, as the median of N runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mdh_core.expr import FLOAT, UINT64
from tuning import runner, verify
from tuning.harness import ArrayArg, Candidate, OuterScalarArg, ScalarArg, Subject
from tuning.runner import Limits, Outcome, Workbench
from tuning.toolchain import Toolchain

_HEADERS = """#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
"""
_NEST = """{headers}
{before}
float dot(const float *x, const float *y, size_t n)
{{
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}}
"""
_RIGHT = "for (size_t k = 0; k < n; k++) s += x[k] * y[k];"
_FIRST = "__attribute__((constructor)) static void c(void)"
_LAST = "__attribute__((destructor)) static void c(void)"
_FORGED = r'{\"verify\":0,\"handled\":1,\"inexact\":0,\"mismatches\":0}\n{\"done\":1,\"left_out\":0}\n'


@dataclass(frozen=True, slots=True)
class Kind:
    """``body`` runs in the candidate's kernel, ``file`` stands in the user's file; ``@CANARY@`` is a file
    outside of the run's directory, ``@MARK@`` an argument by which a process left behind is known."""

    name: str
    label: str  # the outcome's kind, or several, separated by `|`
    body: str = _RIGHT
    file: str = ""
    reason: str = ""  # part of the outcome's reason


KINDS = (
    Kind("segmentation fault", "crashed", "*(volatile int *)8 = 1;", reason="SIGSEGV"),
    Kind("abort", "crashed", "abort();", reason="SIGABRT"),
    Kind("stack overflow", "crashed", "extern int deeper(volatile char *); char c[64]; deeper(c);",
         "int deeper(volatile char *p) { volatile char b[4096]; b[0] = *p; return deeper(b) + b[1]; }",
         "SIGSEGV"),
    Kind("endless loop", "timed_out", "volatile int go = 1; while (go) ;"),
    Kind("fork bomb", "forbidden", "for (;;) fork();", reason="clone"),
    Kind("fork bomb by system call", "forbidden", "for (;;) syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);",
         reason="clone"),
    Kind("thread bomb", "crashed|timed_out|no_memory",
         "pthread_t t; for (;;) pthread_create(&t, 0, (void *(*)(void *))pause, 0);"),
    Kind("100 GB allocation", "crashed", "volatile char *p = malloc(100ul << 30); p[n] = 1;",
         reason="SIGSEGV"),
    Kind("many allocations", "crashed", "for (;;) { volatile char *p = malloc(64ul << 20); p[n] = 1; }",
         reason="SIGSEGV"),
    Kind("raises its limits", "forbidden",
         "struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY}; setrlimit(RLIMIT_AS, &r);"),
    Kind("10 GB of output", "output_flood",
         "static char b[1 << 16]; for (long k = 0; k < 10l << 14; k++) write(1, b, sizeof b);"),
    Kind("10 GB of messages", "output_flood",
         "static char b[1 << 16]; for (long k = 0; k < 10l << 14; k++) write(2, b, sizeof b);"),
    Kind("10 GB into a file", "forbidden",
         'int f = open("big", O_CREAT | O_WRONLY, 0600); for (;;) write(f, &f, 4);', reason="openat"),
    Kind("writes outside of its directory", "forbidden", 'fputs("harm", fopen("@CANARY@", "w"));',
         reason="openat"),
    Kind("removes a file", "forbidden", 'unlink("@CANARY@");', reason="unlink"),
    Kind("renames a file", "forbidden", 'rename("@CANARY@", "@CANARY@.gone");', reason="rename"),
    Kind("cuts a file off", "forbidden", 'truncate("@CANARY@", 0);', reason="truncate"),
    Kind("changes a mode", "forbidden", 'chmod("@CANARY@", 0);', reason="chmod"),
    Kind("signal to the parent", "forbidden", "kill(getppid(), SIGKILL);", reason="kill"),
    Kind("signal to all", "forbidden", "kill(-1, SIGKILL);", reason="kill"),
    Kind("signal to its group", "forbidden", "kill(0, SIGTERM);", reason="kill"),
    Kind("traces the parent", "forbidden", "ptrace(PTRACE_ATTACH, getppid(), 0, 0);", reason="ptrace"),
    Kind("outlives the parent", "forbidden", "prctl(PR_SET_PDEATHSIG, 0);", reason="prctl"),
    Kind("forged result on standard output", "crashed", f'printf("{_FORGED}"); fflush(stdout); _exit(0);',
         reason="before its results"),
    Kind("forged result on all descriptors", "tampered",
         f'for (int d = 1; d < 64; d++) dprintf(d, "{_FORGED}"); _exit(0);'),
    Kind("forged result, then right", "tampered",
         f'for (int d = 3; d < 64; d++) dprintf(d, "{_FORGED}"); {_RIGHT}'),
    Kind("forged result at the end", "ok",  # what is to run at the end is not run
         "static int once; if (!once++) atexit(forge); " + _RIGHT,
         f'static void forge(void) {{ for (int d = 3; d < 64; d++) dprintf(d, "{_FORGED}"); }}'),
    Kind("reads the key from its arguments", "tampered",
         'char b[4096]; int f = open("/proc/self/cmdline", O_RDONLY); long l = read(f, b, sizeof b);'
         " for (int d = 3; d < 64; d++) write(d, b, l); _exit(0);"),
    Kind("closes all descriptors", "crashed", "for (int d = 0; d < 64; d++) close(d); " + _RIGHT,
         reason="closed the descriptor"),
    Kind("results into another file", "crashed",
         'for (int d = 0; d < 64; d++) close(d); for (int d = 0; d < 64; d++) open("/dev/null", O_RDONLY); '
         + _RIGHT, reason="closed the descriptor"),
    Kind("sleeps and ignores SIGTERM", "timed_out",
         "for (int k = 1; k < 32; k++) signal(k, SIG_IGN); for (;;) sleep(1000);"),
    Kind("daemon", "forbidden",
         'if (!fork()) { setsid(); if (!fork()) for (;;) sleep(1000); _exit(0); } ' + _RIGHT, reason="clone"),
    Kind("starts a program", "forbidden", 'execl("/bin/sleep", "sleep", "@MARK@", (char *)0);',
         reason="execve"),
    Kind("starts a shell", "forbidden", 'system("sleep @MARK@ &");'),
    Kind("ignores the signal for it", "forbidden", "signal(SIGSYS, SIG_IGN); fork(); for (;;) pause();"),
    Kind("catches the signal for it", "timed_out", "signal(SIGSYS, noted); for (;;) fork();",
         "static void noted(int n) { (void)n; }"),
    Kind("opens a connection", "forbidden", "socket(AF_INET, SOCK_STREAM, 0);", reason="socket"),
    Kind("reads standard input", "ok", "char c; if (read(0, &c, 1) > 0) s += 1e9f; " + _RIGHT),
    Kind("ends early with 0", "crashed", "exit(0);", reason="before its results"),
    Kind("ends early with 95", "crashed", "_exit(95);"),
    Kind("wrong result", "wrong_result", "s += 1;"),
    Kind("writes beside its arrays", "wrong_result|crashed",
         _RIGHT + " result[1] = 9; ((float *)x)[-1] = 1;"),
    Kind("writes to an input", "wrong_result", _RIGHT + " if (n) ((float *)x)[0] = 9;"),
    # the user's file does the harm, before anything of ours
    Kind("file: constructor ends the program", "crashed", file=_FIRST +
         " { _exit(0); }", reason="before its results"),
    Kind("file: constructor forges", "tampered", file=_FIRST +
         f' {{ for (int d = 3; d < 64; d++) dprintf(d, "{_FORGED}"); _exit(0); }}'),
    Kind("file: constructor reads the key", "ok",  # it was read before
         file=_FIRST +
         " { char b[256]; long l = read(0, b, 256); if (l > 0) _exit(1); }"),
    Kind("file: constructor loops", "timed_out", file=_FIRST +
         " { for (;;) pause(); }"),
    Kind("file: constructor starts a daemon", "forbidden", file=_FIRST +
         ' { if (!fork()) { setsid(); execlp("sleep", "sleep", "@MARK@", (char *)0); } }', reason="clone"),
    Kind("file: constructor bombs", "forbidden", file=_FIRST +
         " { for (;;) fork(); }", reason="clone"),
    Kind("file: constructor writes elsewhere", "ok", file=_FIRST +
         ' { FILE *f = fopen("@CANARY@", "w"); if (f) fputs("harm", f); unlink("@CANARY@"); }'),
    Kind("file: constructor allocates 100 GB", "crashed", file=_FIRST +
         " { volatile char *p = malloc(100ul << 30); p[99] = 1; }", reason="SIGSEGV"),
    Kind("file: destructor loops", "ok", file=_LAST +
         " { for (;;) pause(); }"),
    Kind("file: main does harm", "ok", file='int main(void) { remove("@CANARY@"); return fork(); }'),
)  # fmt: skip


def subject_and_candidate(kind: Kind, canary: Path, mark: str) -> tuple[Subject, Candidate]:
    def filled(text: str) -> str:
        return text.replace("@CANARY@", str(canary)).replace("@MARK@", mark)

    data = _NEST.format(headers=_HEADERS, before=filled(kind.file)).encode()
    start = data.index(b"    for (size_t i")
    stop = data.index(b"    return sum")
    behind = data.index(b"\n}", stop) + 3
    args = (
        ScalarArg("n", "size_t", UINT64),
        ArrayArg("x", "const float", FLOAT, written=False),
        ArrayArg("y", "const float", FLOAT, written=False),
        OuterScalarArg("sum", "float", FLOAT),
    )
    line = data[:start].count(b"\n") + 1
    nest = data[start:stop]
    subject = Subject(data, "user.c", behind, nest, line, args, lambda s: {"x": s["n"], "y": s["n"]})
    head = "static int kernel(size_t n, const float *x, const float *y, float *result)\n"
    text = head + "{ float s = *result;\n" + filled(kind.body) + "\n*result = s; return 1; }\n"
    return subject, Candidate(text, "kernel(n, x, y, &sum)")


@dataclass(frozen=True, slots=True)
class Answer:
    """``harm``: what was found afterwards that should not be; empty: nothing."""

    outcome: Outcome
    harm: str
    seconds: float

    def right(self, kind: Kind) -> bool:
        labelled = self.outcome.kind in kind.label.split("|") and kind.reason in self.outcome.reason
        return labelled and not self.harm


def answer(bench: Workbench, kind: Kind, seconds: float = 1.0) -> Answer:
    """Build and run it; then look for harm."""
    mark = f"{600000 + os.getpid() % 100000}.{time.monotonic_ns() % 10**6:06d}"
    with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
        canary = Path(directory, "canary")
        canary.write_text("alive")
        mode = canary.stat().st_mode
        subject, candidate = subject_and_candidate(kind, canary, mark)
        built = bench.build(subject, candidate)
        if not built.ok:
            return Answer(built, "", 0.0)
        started = time.monotonic()
        cases = verify.cases_for(subject, [{"n": 7}, {"n": 64}])
        outcome = verify.verify(bench, subject, built.data["program"], cases, seconds=seconds).outcome
        spent = time.monotonic() - started
        harm = [] if canary.is_file() and canary.read_text() == "alive" else ["the file was changed"]
        harm += ["the mode was changed"] if canary.exists() and canary.stat().st_mode != mode else []
    program = str(built.data["program"])
    left = [words for words in _commands() if mark in words or program in words]
    harm += [f"left behind: {' '.join(words)}" for words in left]
    return Answer(outcome, "; ".join(harm), spent)


def _commands() -> Iterator[list[str]]:
    """The arguments of all processes that are no zombies."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                raw = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if raw:
                yield [word.decode("utf-8", "replace") for word in raw.split(b"\0")]


@contextmanager
def workbench(compiler: str = "gcc") -> Iterator[Workbench]:
    with tempfile.TemporaryDirectory(prefix="hostile-cache-") as cache:
        limits = Limits(compile_seconds=60, run_seconds=10, memory_bytes=1 << 30)
        yield Workbench(
            Toolchain((compiler,), ("-O1",)), limits, threads=2, jobs=1, cache_dir=Path(cache)
        )


def overhead(bench: Workbench, runs: int) -> tuple[float, float]:
    """Median seconds of a run by the workbench and of the bare program by itself, in turn."""
    kind = Kind("right", "ok")
    subject, candidate = subject_and_candidate(kind, Path("/nowhere"), "0")
    program = str(bench.build(subject, candidate).data["program"])
    text = runner.case_text(0, "verify", subject, {"n": 7}, {"threads": 1})
    assert text is not None
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as directory:
        spec = Path(directory, "spec")
        spec.write_text(text)
        for _ in range(runs):
            started = time.perf_counter()
            assert bench.run(program, [text]).ok
            ours.append(time.perf_counter() - started)
            started = time.perf_counter()
            subprocess.run([program, str(spec), "1"], stdout=subprocess.PIPE, check=True)
            bare.append(time.perf_counter() - started)
    return statistics.median(ours), statistics.median(bare)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.hostile", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--overhead", type=int, default=0, metavar="RUNS")
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--seconds", type=float, default=1.0, help="wall time of a candidate")
    chosen = parser.parse_args()
    labels: Counter[str] = Counter()
    wrong = 0
    with workbench(chosen.compiler) as bench:
        for _ in range(chosen.rounds):
            for kind in KINDS:
                found = answer(bench, kind, chosen.seconds)
                labels[found.outcome.kind] += 1
                if not found.right(kind):
                    wrong += 1
                    print(f"WRONG {kind.name}: {found.outcome.kind} ({found.outcome.reason}); {found.harm}")
        if chosen.overhead:
            ours, bare = overhead(replace(bench), chosen.overhead)
            print(f"a run takes {1e3 * ours:.1f} ms, the bare program {1e3 * bare:.1f} ms")
    total = chosen.rounds * len(KINDS)
    good = f"{total - wrong} labelled rightly and without harm"
    print(f"{len(KINDS)} kinds, {total} runs, {good}: {dict(labels)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
