"""Kernels of random nests, compiled and compared with the compiled original.

Two files per batch: the originals (``-O0``), and the functions with their kernels spliced in (``-O1`` with
the address and undefined behaviour sanitizers), plus a main program that holds the data.  Every array is a
block of its own of exactly the size that it needs.  Where nothing promises that two arrays of a type are
disjoint, some runs put both into one block: then the kernel must decline or do the same.
"""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from campaigns.nest_data import Sizes, chosen_sizes, extents_of, one_block, random_data, survives
from campaigns.nest_tree import C_TYPES, PRELUDE, Nest, c_text
from emit.c_text import constant
from lifter.lift import LiftedNest
from lowering.point import Point
from lowering.space import Space
from mdh_core.evaluate import Value
from mdh_core.expr import DOUBLE, FLOAT
from mdh_lift.kernels import Plan, after_text, plan

COMPILER = "gcc"
ORIGINAL = ("-O0", "-w", "-ffp-contract=off")
KERNELS = (
    "-O1", "-w", "-ffp-contract=off", "-fopenmp", "-fsanitize=address,undefined", "-fno-sanitize=vla-bound",
    "-fno-sanitize-recover=all",
)  # fmt: skip
THREADS = 3
MOST_POINTS = 2500
SIZES = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 33, 40)


@dataclass(frozen=True)
class Run:
    """One call: sizes, data, and perhaps two arrays in one block, the second so many elements on."""

    sizes: Sizes
    arrays: Mapping[str, list[Value]]
    scalars: Mapping[str, Value]
    shared: tuple[str, str, int] | None = None


@dataclass(frozen=True)
class Job:
    """A nest that was lifted, the text of its kernel and of the function around it, and its runs."""

    seed: int
    nest: Nest
    text: str
    runs: tuple[Run, ...]


@dataclass
class Results:
    failures: dict[int, tuple[str, str]] = field(default_factory=dict)  # seed: class, detail
    ran: int = 0  # calls in which the kernel did the work
    declined: int = 0


# --------------------------------------------------------------------------- one nest


def job(seed: int, nest: Nest, lifted: LiftedNest, trials: int = 5) -> Job:
    """Raises whatever planning and emitting raise."""
    rng = random.Random(seed)
    small = tuple((n, rng.choice([4, 9, 16, 33])) for n in nest.sizes)
    directive = replace(lifted.nest.directive, sizes=(small,))
    made = plan(replace(lifted, nest=replace(lifted.nest, directive=directive, function=f"k{seed}")))
    kernel = made.kernel(random_point(made, rng))
    text = kernel.text
    if rng.random() < 0.6:  # threads for small sizes, too
        text = re.sub(r"^(\s*#pragma omp parallel for.*?) if \(.*\)$", r"\1", text, flags=re.MULTILINE)
    whole = c_text(nest, f"k{seed}")
    pragma = next(line for line in whole.splitlines() if line.startswith("#pragma mdh"))
    done = f"mdh_ran = 1; {after_text(lifted)}"
    spliced = whole.replace(pragma, f"    if ({kernel.call}) {{ {done} }} else")
    return Job(seed, nest, text + spliced, tuple(runs_of(nest, lifted, rng, trials)))


def random_point(made: Plan, rng: random.Random) -> Point:
    """The default, or another legal one."""
    default = made.default
    if rng.random() < 0.4:
        return default
    space: Space = made.space
    known = {"__builtins__": {}, "min": min, "max": max}
    for _ in range(30):
        point = {name: rng.choice(values) for name, values in space.parameters}
        changed = {n: point[n] if rng.random() < 0.5 else default[n] for n in point}
        for candidate in (point, changed):
            if all(eval(r, known, candidate) for r in space.restrictions):
                return candidate
    return default


def runs_of(nest: Nest, lifted: LiftedNest, rng: random.Random, trials: int) -> list[Run]:
    """Data for which every order of a sum is exact; shared memory keeps the original's order anyway."""
    out: list[Run] = []
    for trial in range(3 * trials):
        if len(out) == trials:
            break
        pool = (5, 7, 8, 13, 16, 17, 33) if trial == 0 else SIZES
        sizes = chosen_sizes(nest, rng, pool, MOST_POINTS)
        arrays, scalars = random_data(nest, sizes, rng)
        shared = sharing(nest, sizes, rng) if rng.random() < 0.4 else None
        if survives(nest, lifted, sizes, arrays, scalars, shared):
            out.append(Run(sizes, arrays, scalars, shared))
    return out


def sharing(nest: Nest, sizes: Sizes, rng: random.Random) -> tuple[str, str, int] | None:
    """Two arrays that nothing keeps from overlapping, and how far the second begins after the first."""
    open_ = [a for a in nest.arrays if a.data != "index" and not a.restrict]
    pairs = [(a, b) for a in open_ for b in open_ if a.name != b.name and a.type == b.type]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    length = math.prod(extents_of(a, sizes))
    return a.name, b.name, rng.choice([0, 1, rng.randint(0, max(0, length))])


# --------------------------------------------------------------------------- the program


HEAD = """#include <math.h>
#include <stdlib.h>
#include <string.h>
extern int mdh_ran;
"""

MAIN = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int mdh_ran;
static void *block(const void *data, size_t bytes) {
  void *p = malloc(bytes);
  memcpy(p, data, bytes);
  return p;
}
#define SAME(x, y) ((x) == (y) || ((x) != (x) && (y) != (y)))
#define COMPARE(T, name, a, b, n) \\
  for (long x = 0; x < (long)(n); x++) { const T p = ((T *)(a))[x], q = ((T *)(b))[x]; \\
    if (!SAME(p, q)) { printf("! %s[%ld] is %.17g, not %.17g\\n", name, x, (double)q, (double)p); break; } }
static int skipped(int argc, char **argv, int seed) {
  for (int i = 1; i < argc; i++) if (atoi(argv[i]) == seed) return 1;
  return 0;
}
"""


def literal(value: Value, type_name: str) -> str:
    if type_name in ("float", "double"):
        return constant(value, FLOAT if type_name == "float" else DOUBLE)  # type: ignore[arg-type]
    return str(value) + ("ul" if type_name.startswith("uint") else "l")


def prototype(nest: Nest, name: str) -> str:
    """Pointers to rows are passed as pointers to anything."""
    params = ["int"] * len(nest.sizes) + ["void *"] * len(nest.arrays)
    params += [C_TYPES[s.type] for s in nest.scalars if s.start is None]
    params += ["void *" for s in nest.scalars if s.live]
    return f"void {name}({', '.join(params)});"


def call_text(j: Job, number: int, run: Run) -> str:
    nest, lines = j.nest, [f"static void c{j.seed}_{number}(void) {{"]
    sides = ("o", "k")
    blocks: dict[str, str] = {}
    for a in nest.arrays:
        if run.shared and run.shared[1] == a.name:
            continue
        data = list(run.arrays[a.name])
        if run.shared and run.shared[0] == a.name:
            data = one_block(data, run.arrays[run.shared[1]], run.shared[2])
        t = C_TYPES[a.type]
        text = ", ".join(literal(v, a.type) for v in data)
        lines.append(f"  static const {t} d_{a.name}[] = {{{text}}};")
        for side in sides:
            lines.append(f"  {t} *{side}_{a.name} = block(d_{a.name}, sizeof d_{a.name});")
        blocks[a.name] = t
    if run.shared:
        first, second, offset = run.shared
        t = C_TYPES[nest.array(second).type]
        for side in sides:
            lines.append(f"  {t} *{side}_{second} = {side}_{first} + {offset};")
    live = [s for s in nest.scalars if s.live]
    for s in live:
        for side in sides:
            lines.append(f"  {C_TYPES[s.type]} {side}_r_{s.name} = 0;")
    for side in sides:
        actual = [str(run.sizes[n]) for n in nest.sizes] + [f"{side}_{a.name}" for a in nest.arrays]
        actual += [literal(run.scalars[s.name], s.type) for s in nest.scalars if s.start is None]
        actual += [f"&{side}_r_{s.name}" for s in live]
        if side == "k":
            lines.append("  mdh_ran = 0;")
        lines.append(f"  {side}{j.seed}({', '.join(actual)});")
    lines.append('  printf("%s\\n", mdh_ran ? "ran" : "declined");')
    for name, t in blocks.items():
        lines.append(f'  COMPARE({t}, "{name}", o_{name}, k_{name}, sizeof d_{name} / sizeof *o_{name})')
    for s in live:
        lines.append(f'  COMPARE({C_TYPES[s.type]}, "{s.name}", &o_r_{s.name}, &k_r_{s.name}, 1)')
    for name in blocks:
        lines.append(f"  free(o_{name}); free(k_{name});")
    return "\n".join([*lines, "}"])


def main_text(jobs: Sequence[Job]) -> str:
    out, calls = [MAIN], []
    for j in jobs:
        out += [prototype(j.nest, f"o{j.seed}"), prototype(j.nest, f"k{j.seed}")]
        for number, run in enumerate(j.runs):
            out.append(call_text(j, number, run))
            start = f'printf("@ {j.seed} {number}\\n"); fflush(stdout);'
            calls.append(f"  if (!skipped(argc, argv, {j.seed})) {{ {start} c{j.seed}_{number}(); }}")
    body = "\n".join(calls)
    return "\n".join([*out, f"int main(int argc, char **argv) {{\n{body}\n  return 0;\n}}", ""])


# --------------------------------------------------------------------------- running


def run_jobs(jobs: Sequence[Job], timeout: float = 300.0) -> Results:
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        left = built(jobs, directory, results)
        skip: list[int] = []
        while left:
            crashed = execute(directory / "all", left, skip, results, timeout)
            if crashed is None:
                break
            skip.append(crashed)
    return results


def built(jobs: Sequence[Job], directory: Path, results: Results) -> list[Job]:
    """Compiles what compiles; the others are failures."""
    left = list(jobs)
    for _ in range(2):
        problem = compiled(left, directory)
        if not problem:
            return left
        for j in list(left):
            problem = compiled([j], directory, only_syntax=True)
            if problem:
                results.failures[j.seed] = ("emit: does not compile", problem)
                left.remove(j)
        if not left:
            return left
    for j in left:
        results.failures[j.seed] = ("emit: does not compile", compiled(left, directory))
    return []


def compiled(jobs: Sequence[Job], directory: Path, only_syntax: bool = False) -> str:
    """The compiler's first error, "" for none."""
    texts = {
        "original.c": HEAD + PRELUDE + "".join(c_text(j.nest, f"o{j.seed}", pragma=False) for j in jobs),
        "kernels.c": HEAD + PRELUDE + "".join(j.text for j in jobs),
        "main.c": main_text(jobs),
    }
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
        flags = KERNELS if name == "kernels.c" else ORIGINAL
        task = ["-fsyntax-only"] if only_syntax else ["-c", "-o", str(directory / f"{name}.o")]
        done = subprocess.run(
            [COMPILER, *flags, *task, str(directory / name)], capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line or "internal" in line]
            return f"{name}: {(errors or ['failed'])[0][:300]}"
    if only_syntax:
        return ""
    objects = [str(directory / f"{name}.o") for name in texts]
    command = [COMPILER, *KERNELS, *objects, "-o", str(directory / "all"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return done.stderr[:300] if done.returncode else ""


def execute(
    program: Path, jobs: Sequence[Job], skip: Sequence[int], results: Results, timeout: float
) -> int | None:
    """Runs all but some nests; the seed of the one that crashed, if one did."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(THREADS),
        "OMP_WAIT_POLICY": "passive",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=0",
    }
    command = [str(program), *map(str, skip)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment, errors="replace"
        )
        output, errors, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout.decode() if isinstance(expired.stdout, bytes) else expired.stdout or ""
        errors, status = "timeout", 1
    seed, results.ran, results.declined = 0, 0, 0
    runs = {j.seed: j.runs for j in jobs}
    where = ""
    for line in output.splitlines():
        if line.startswith("@ "):
            seed, number = map(int, line.split()[1:])
            run = runs[seed][number]
            where = ", ".join(f"{n}={v}" for n, v in run.sizes.items())
            where += f" shared {run.shared}" if run.shared else ""
        elif line.startswith("! "):
            results.failures.setdefault(seed, ("emit: wrong result", f"{where}: {line[2:]}"))
        results.ran += line == "ran"
        results.declined += line == "declined"
    if status == 0:
        return None
    told = re.search(r"runtime error: [^\n]*|ERROR: AddressSanitizer: [\w-]+|timeout", errors)
    kind = told[0] if told else f"exit status {status}"
    short = re.sub(r"[-0-9]+.*", "", kind.replace("ERROR: AddressSanitizer", "address")).strip()
    results.failures[seed] = (f"emit: {short}", f"{where}: {errors.strip()[:400]}")
    return seed
