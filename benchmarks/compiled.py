"""Peers that are compilers of the same C file.  Each is one program per case:

    original    as written, gcc -O3 -march=native
    naive       the same with ``#pragma omp parallel for`` (``naive.py``)
    naive-fast  naive, and ``-ffast-math``
    polly       clang with Polly's tiling, threads and vectors, and ``-ffast-math``
    default     mdh-lift, the cost model's choice
    tuned       mdh-lift after a search

A program is the subject of ``tuning/harness.py`` with ``tuning/driver.c`` and ``serve.c``.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.cases import CORPUS, Case
from benchmarks.naive import with_directives
from frontend_c.preprocess import CompileCommand
from lowering.machine import has_huge_pages
from lowering.point import Point
from mdh_core.diagnostics import Refusal
from mdh_core.expr import RecordType, ScalarType, Type
from mdh_core.ir import MdhProgram
from mdh_core.source import SourceFile
from mdh_lift import improve, nest_sizes, pipeline, run_search
from mdh_lift import subject as subjects
from mdh_lift.config import Config
from mdh_lift.counts import counts
from tuning.budget import Budget, parse_budget
from tuning.harness import (
    ORIGINAL_ONLY,
    ArrayArg,
    Candidate,
    DerivedArg,
    IteratorArg,
    OuterScalarArg,
    Subject,
    driver_text,
    subject_text,
)
from tuning.results import TuneResult
from tuning.runner import case_text
from tuning.verify import DATA, EXACT_DATA

COMPILED = ("original", "naive", "naive-fast", "polly", "default", "tuned")
GCC = ("gcc", "-O3", "-march=native", "-fopenmp", "-w")
POLLY = (
    "clang", "-O3", "-march=native", "-ffast-math", "-w", "-mllvm", "-polly", "-mllvm", "-polly-parallel",
    "-mllvm", "-polly-vectorizer=stripmine", "-mllvm", "-polly-only-func=mdh_original",
)  # fmt: skip
COMPILE_SECONDS = 300.0
SEED = 1


class Missing(Exception):  # noqa: N818 - no error: a dash in the table
    """A peer is not there, or not for this case."""


@dataclass(frozen=True, slots=True)
class Argument:
    """What Python has to know of an argument: its bytes in a file, and whether the result is compared."""

    name: str
    dtype: str  # as NumPy writes it; "V60" for a record of 60 bytes
    count: int
    is_array: bool
    read: bool
    written: bool
    compared: bool
    fields: tuple[tuple[str, int], ...] = ()  # of a record: what NumPy calls their types, and where they are


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case whose nest is lifted."""

    case: Case
    work: improve.Work
    arguments: tuple[Argument, ...]

    @property
    def is_double(self) -> bool:
        return any(a.dtype == "f8" for a in self.arguments if a.is_array)

    @property
    def stored(self) -> tuple[int, int]:
        """Bytes of outputs that the nest's only program reads as well, and of those that it only writes."""
        lifted = self.work.plan.lifted
        if len(lifted.program) != 1 or not isinstance(lifted.program[0], MdhProgram):
            return 0, 0
        values = {**self.work.variables, **self.case.values}
        params = nest_sizes.parameter_values(lifted, {k: v for k, v in values.items() if isinstance(v, int)})
        found = () if params is None else counts(lifted, params).buffers
        updated = sum(min(b.first, b.written) * b.element for b in found)
        return updated, sum(b.written * b.element for b in found) - updated

    def with_threads(self, threads: int) -> Prepared:
        """For so many threads, and arrays as NumPy's: what mdh-lift chooses depends on both."""
        machine = replace(self.work.plan.machine, cores=threads, huge_pages=has_huge_pages(asked=True))
        bench = replace(self.work.bench, threads=threads, huge_pages=True)
        return replace(
            self, work=replace(self.work, plan=replace(self.work.plan, machine=machine), bench=bench)
        )

    def spec(self, threads: int) -> str:
        """The case for ``serve.c``: values are small integers where they can be, so that sums are exact."""
        style = subjects.data_style(self.work.plan.lifted)
        settings = {
            "seed": SEED, "data": DATA.index(EXACT_DATA[style]), "threads": threads, "huge_pages": 1,
        }  # fmt: skip
        values = {**self.work.variables, **self.case.values}
        text = case_text(0, "bench", self.work.subject, values, settings)
        if text is None:
            raise Missing("the sizes make no sense for the nest")
        return text


def prepare(case: Case) -> Prepared:
    """Lift the nest of a case; raises ``Missing`` with the reason where that cannot be."""
    options = pipeline.Options(Config(), resume=False)
    command = CompileCommand("gcc", ("-O3", "-march=native", *case.defines), ".")
    report = pipeline.check_file(str(CORPUS / case.source), replace(options, command=command))
    entry = case.entry
    wanted = f"{entry['function']}::{entry['nest']}"
    nest = next((n for n in report.nests if n.name.endswith(wanted)), None)
    if nest is None or nest.lifted is None:
        raise Missing("not lifted")
    try:
        work = improve.prepare(report, nest, options, case.sizes)
    except Refusal as refusal:
        raise Missing(str(refusal)) from None
    # macros of the nest may be undefined behind its function
    text = SourceFile(report.source.path, report.bare.data)
    expanded = subjects.preprocessed_nest(work.plan.lifted.nest, text, report.command)
    if _needs_expansion(case, work.subject):
        work = replace(work, subject=subjects.subject_of(work.plan.lifted, text.data, text.path, expanded))
    return Prepared(case, work, _arguments(work))


def _needs_expansion(case: Case, subject: Subject) -> bool:
    """Is something of the nest undefined there?  A macro with arguments looks like a function."""
    heard = [flag for flag in GCC if flag != "-w"] + ["-Werror=implicit-function-declaration"]
    command = [*heard, *case.defines, "-iquote", str(CORPUS), "-fsyntax-only", "-x", "c", "-"]
    done = subprocess.run(command, input=subject_text(subject, ORIGINAL_ONLY), capture_output=True)
    return done.returncode != 0


def _arguments(work: improve.Work) -> tuple[Argument, ...]:
    counts = work.subject.counts(work.variables) or {}
    found = []
    for a in work.subject.args:
        if isinstance(a, DerivedArg):
            continue
        array, outer = isinstance(a, ArrayArg), isinstance(a, OuterScalarArg)
        written = a.written if isinstance(a, ArrayArg) else outer
        found.append(
            Argument(
                a.name,
                _dtype(a.type),
                int(counts[a.name]) if array else 1,
                array,
                a.read if isinstance(a, ArrayArg) else not isinstance(a, IteratorArg),
                written,
                written and (array or (isinstance(a, OuterScalarArg) and a.live)),
                _fields(a.type),
            )
        )
    return tuple(found)


def _fields(type_: Type) -> tuple[tuple[str, int], ...]:
    """Of a record, every field at the next multiple of its size, as compilers lay them out."""
    if not isinstance(type_, RecordType):
        return ()
    found, end = [], 0
    for _, t in type_.fields:
        at = -(-end // t.size) * t.size
        found.append((_dtype(t), at))
        end = at + t.size
    return tuple(found)


def _dtype(type_: Type) -> str:
    if isinstance(type_, RecordType):
        return f"V{type_.size}"
    assert isinstance(type_, ScalarType)
    return {"float": "f", "int": "i", "uint": "u", "bool": "u"}[type_.kind] + str(type_.size)


# --------------------------------------------------------------------------- programs


def build(peer: str, prepared: Prepared, budget: str, directory: Path) -> tuple[list[str], Point | None]:
    """The program of a peer and how it is asked for its nest; the point where there is one."""
    case, subject = prepared.case, prepared.work.subject
    program = directory / f"{case.name}-{peer}"
    if peer == "original":
        _compile(GCC, case, subject, ORIGINAL_ONLY, program)
        return [str(program), "original"], None
    if peer == "polly":
        if not has_polly():
            raise Missing("clang has no Polly")
        _compile(POLLY, case, subject, ORIGINAL_ONLY, program, ("-lgomp",))
        return [str(program), "original"], None
    if peer in ("naive", "naive-fast"):
        flags = (*GCC, "-ffast-math") if peer == "naive-fast" else GCC
        _compile(flags, case, subject, _naive(case, subject), program)
        return [str(program), "candidate"], None
    point = _point(peer, prepared, budget)
    return [str(program_of(prepared, point, program)), "candidate"], point


def program_of(prepared: Prepared, point: Point, program: Path) -> Path:
    """The program of a point, made at a path; raises ``Missing`` where it does not compile."""
    _compile(GCC, prepared.case, prepared.work.subject, prepared.work.plan.candidate(point), program)
    return program


def _point(peer: str, prepared: Prepared, budget: str) -> Point:
    if peer == "default":
        return prepared.work.plan.default
    result = searched(prepared, budget)
    if result.winner is None:
        raise Missing(str(result.problem or result.reasons))
    return dict(result.winner.point)


def searched(prepared: Prepared, budget: str, seed: int = 0) -> TuneResult:
    """A search as the command makes it, of which nothing is recorded; ``seed``: 0 is the usual one."""
    tune = msgspec.structs.replace(Config().tune, budget=budget, seed=seed)
    options = pipeline.Options(msgspec.structs.replace(Config(), tune=tune), resume=False)
    work = replace(prepared.work, options=options)
    limit: Budget = parse_budget(budget)
    return run_search.tuned(work, work.plan.space, limit, "bench", lambda *_: None)


def _naive(case: Case, subject: Subject) -> Candidate:
    if not case.naive:
        raise Missing("no loop is parallel as it is written")
    outer = [a.name for a in subject.args if isinstance(a, OuterScalarArg | IteratorArg)]
    text = with_directives(subject.nest.decode(), case.naive, outer)
    return Candidate("", "1", "{" + text + "}")


def _compile(
    command: Sequence[str],
    case: Case,
    subject: Subject,
    candidate: Candidate,
    program: Path,
    link: Sequence[str] = (),
) -> None:
    source = program.with_suffix(".c")
    source.write_bytes(subject_text(subject, candidate))
    words = [*command, *case.defines, "-iquote", str(CORPUS), str(source), str(_driver(program.parent))]
    words += ["-o", str(program), *link, "-lm", "-ldl"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"does not compile in {COMPILE_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise Missing("does not compile: " + done.stderr.strip()[:400])


def _driver(directory: Path) -> Path:
    made = directory / "serve.o"
    made.write_bytes(_driver_object())
    return made


@functools.cache
def _driver_object() -> bytes:
    """The same for all cases and peers."""
    with tempfile.TemporaryDirectory(prefix="mdh-lift-bench-") as scratch:
        source, made = Path(scratch, "serve.c"), Path(scratch, "serve.o")
        end = Path(__file__).with_name("serve.c").read_bytes()
        source.write_bytes(b"#define main mdh_driver_main\n" + driver_text() + b"\n" + end)
        subprocess.run(["gcc", "-O2", "-w", "-c", str(source), "-o", str(made)], check=True)
        return made.read_bytes()


@functools.cache
def has_polly() -> bool:
    if shutil.which(POLLY[0]) is None:
        return False
    words = [*POLLY, "-x", "c", "-", "-o", "/dev/null", "-lgomp"]
    return subprocess.run(words, input=b"int main(void) { return 0; }\n", capture_output=True).returncode == 0
