"""Tuning one nest and what may be spliced of it.

    plan -> subject -> (search) -> verify -> measure -> part, lock entry

The verdict is about the user's own compile command plus ``-fopenmp``; without one, about
``DEFAULT_FLAGS``.  Nothing becomes a ``SplicePart`` that was not compiled, run and compared here.
"""

from __future__ import annotations

import math
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from certify.obligations import Certificate
from emit.gpu_file import GpuPart
from frontend_c.preprocess import CompileCommand, compiler_not_started, find_compiler
from lowering.lower import lower
from lowering.machine import SystemModel, this_machine
from lowering.parameters import Configuration, why_not_legal
from lowering.point import Point
from lowering.space import Space
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.ir import MdhProgram
from mdh_core.laws import check_laws
from mdh_core.source import NO_SPAN, SourceFile, Span
from mdh_lift import beside, certified, iterations, kernels, macros
from mdh_lift import subject as subjects
from mdh_lift.findings import Finding
from mdh_lift.gpu_plans import MODELS, GpuPlan, gpu_plan
from mdh_lift.pipeline import (
    FileReport,
    NestReport,
    Options,
    lines_of,
    macros_of,
    short_name,
    source_hash,
    splice_part,
    target_of,
)
from mdh_lift.specials import specials_of
from mdh_lift.splice import SplicePart
from mdh_lift.version import VERSION
from tuning import lock as locks
from tuning.accelerator import accelerator, with_limits
from tuning.budget import Budget, parse_budget
from tuning.fingerprint import fingerprint
from tuning.harness import Subject
from tuning.measure import Ratio
from tuning.runner import COMPILE_FAILED, CUT_OFF, OK, WRONG_RESULT, Limits, Outcome, Workbench
from tuning.search import Evaluation
from tuning.store import Context, Store, StoreError
from tuning.toolchain import Toolchain
from tuning.tune import Settings, TuneResult, Winner, text_hash, tune
from tuning.verify import EXACT_DATA, Case, Thorough, VerifySummary, cases_for, size_ladder

DEFAULT_FLAGS = ("-O3", "-march=native")
FIXED = "fixed"  # the size class of a nest without integer parameters
_CONTRACTION = (
    "under `fp(exact)` every bit counts, and compilers choose for each loop whether a*b + c is rounded once"
    " or twice; `-ffp-contract=off` in the compile command makes them agree"
)
Tell = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much
_CERTIFIED = ("verify", "splice", "all")  # stages with a certificate
_LAST = (3.0, 7)  # seconds and rounds of the last measurement
_LAST_OF_VERIFY = (0.2, 1)
_LAST_IF_FORCED = (0.3, 3)  # nothing depends on it
# drivers reserve addresses for all memory there is, and OpenCL compiles kernels when they are first called
_GPU_LIMITS = Limits(compile_seconds=180.0, run_seconds=120.0, memory_bytes=1 << 46)


@dataclass(frozen=True, slots=True)
class Improvement:
    """What tuning made of a nest; ``part`` is there where it may be spliced.

    sizes      that were tuned for, as text
    outcomes   number of evaluations per kind of outcome; empty where the cost model chose
    gpu_part   what it has in the file beside the source, where the target is a GPU
    entry      for the lock file
    certificate  of the configuration, or why there is none; None where none was asked for
    """

    name: str
    expression: str
    target: str = "openmp"
    sizes: str = ""
    configuration: Mapping[str, object] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    verification: VerifySummary | None = None
    speedup: Ratio | None = None
    part: SplicePart | None = None
    gpu_part: GpuPart | None = None
    entry: locks.Entry | None = None
    findings: tuple[Finding, ...] = ()
    certificate: Certificate | str | None = None

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of what there is to tell."""
        rows = []
        if self.outcomes:
            slow = self.outcomes.get(CUT_OFF, 0)
            rejected = sum(self.outcomes.values()) - self.outcomes.get(OK, 0) - slow
            tried = f"{sum(self.outcomes.values())} configurations"
            tried += f", {slow} of them given up as slow" if slow else ""
            rows.append(("tuned", tried + (f", {rejected} rejected" if rejected else "")))
        if self.verification is not None:
            rows += _verification_rows(self.verification)
        if self.certificate is not None:
            rows.append(("certificate", certified.summary(self.certificate)))
        if self.speedup is not None:
            r = self.speedup
            at = " at the fixed sizes" if self.sizes == FIXED else f" at {self.sizes}"
            rows.append(
                ("speedup", f"{r.median:.2f} x, {r.confidence:.0%} interval {r.low:.2f} to {r.high:.2f}{at}")
            )
        return rows

    def _certificate_json(self) -> dict[str, object] | None:
        if isinstance(self.certificate, str):
            return {"holds": False, "summary": certified.summary(self.certificate), "obligations": []}
        return None if self.certificate is None else self.certificate.as_json()

    def as_json(self) -> dict[str, object]:
        return {
            "target": self.target,
            "sizes": self.sizes,
            "configuration": dict(self.configuration),
            "outcomes": dict(self.outcomes),
            "verification": None if self.verification is None else self.verification.as_json(),
            "certificate": self._certificate_json(),
            "speedup": None if self.speedup is None else asdict(self.speedup),
        }


def _verification_rows(v: VerifySummary) -> list[tuple[str, str]]:
    """How often, on what, against what, with which differences."""
    sizes = "1 size" if len(v.sizes) == 1 else f"{len(v.sizes)} sizes"
    most = f"{v.max_abs:.2g}" if v.max_abs <= 1 else f"{v.max_rel:.2g} of their value"
    difference = "no difference"
    if v.max_ulp:
        difference = f"sums differ by at most {most}, within what their order allows"
    if v.error:
        difference += f": largest error {_number(v.error)} ulp, {_number(v.bound)} allowed there"
    if v.undetermined:
        difference += f"; {v.undetermined} values depend on how the original rounds"
    rows = [("verified", f"{v.cases} runs on {sizes}, {difference}")]
    if v.kinds:
        rows.append(("data", ", ".join(f"{kind} ({n})" for kind, n in v.kinds.items())))
    if v.plain:
        told = f"; the original's own two results differ in {v.differs} values" if v.differs else ""
        rows.append(("against", f"the original as compiled, and at -O0{told}"))
    return rows + [("not tried", note) for note in v.notes]


def _number(v: float) -> str:
    return f"{v:.1f}" if v < 10 else f"{v:.0f}" if v < 1e6 else f"{v:.1e}"


@dataclass(frozen=True, slots=True)
class Work:
    """One nest with everything that its tuning needs."""

    report: FileReport
    nest: NestReport
    options: Options
    plan: kernels.Plan | GpuPlan
    variables: Mapping[str, int]  # the sizes that are tuned for
    subject: Subject
    bench: Workbench

    @property
    def target(self) -> str:
        return self.plan.target.name if isinstance(self.plan, GpuPlan) else "openmp"

    @property
    def size_class(self) -> str:
        return ",".join(f"{n}={v}" for n, v in sorted(self.variables.items())) or FIXED

    @property
    def hash(self) -> str:
        text = SourceFile(self.report.source.path, self.report.bare.data)
        known = macros.definitions(text, self.report.command)
        return source_hash(text.data, self.plan.lifted.nest, known)

    @property
    def lock_name(self) -> str:
        """The nest in the lock file: its path from the lock's directory, without machine paths."""
        path = os.path.relpath(self.report.source.path, self.options.root)
        return f"{path}::{short_name(self.nest.name)}"


def improve(report: FileReport, nest: NestReport, options: Options, stage: str, tell: Tell) -> Improvement:
    """Search, emit, verify and measure, as far as ``stage`` says: tune, verify, bench, splice or all.

    ``verify``, ``bench`` and ``splice`` take the locked configuration if it was made from this source on
    such a machine, else the cost model's choice.  Raises ``Refusal`` where nothing can be run.
    """
    work = prepare(report, nest, options)
    budget = parse_budget(options.config.tune.budget) if stage in ("all", "tune") else Budget(0)
    locked = _locked_point(work) if budget.nothing else None
    space = work.plan.space
    if locked is not None:
        space = _only(space, locked)
    elif budget.nothing:
        space = _only(space, work.plan.default)
    result = tuned(work, space, budget, stage, tell)
    if result.problem is not None and result.problem.kind == COMPILE_FAILED:
        # macros of the nest may be undefined behind its function: use their expansion
        text = SourceFile(report.source.path, report.bare.data)
        expanded = subjects.preprocessed_nest(work.plan.lifted.nest, text, report.command)
        subject = subjects.subject_of(work.plan.lifted, text.data, text.path, expanded)
        again = tuned(replace(work, subject=subject), space, budget, stage, tell)
        result = again if again.problem is None else result
    return _improvement(work, result, stage)


def prepare(
    report: FileReport, nest: NestReport, options: Options, sizes: Mapping[str, int] | None = None
) -> Work:
    """What tuning a lifted nest needs; ``sizes`` of the integer variables instead of the usual ones."""
    assert nest.lifted is not None
    target = target_of(nest, options.target)
    _test_promises(nest)
    wanted = {**kernels.sizes_of(nest.lifted), **(sizes or {})}
    stated = sizes or nest.lifted.nest.directive.sizes
    variables = (subjects.repaired if stated else subjects.fitting)(nest.lifted, wanted)
    if variables is None:
        raise refuse("MDH804", "no sizes were found for which all accesses are inside the arrays",
                     _directive_span(nest),
                     help="state sizes that belong together with a `sizes(...)` clause")  # fmt: skip
    params = kernels.parameter_values(nest.lifted, variables)
    toolchain = toolchain_of(report.command)
    lines, known = lines_of(report, nest), macros_of(report)
    machine = this_machine()
    limits = Limits()
    plan: kernels.Plan | GpuPlan
    if target == "openmp":
        plan = kernels.planned(nest.lifted, params, lines, known)
        formed, default = plan.formed(plan.default)
        _test_legality(nest, formed.programs, formed.configurations(default), machine.model)
    else:
        exact = nest.lifted.nest.directive.fp == "exact"
        by = with_limits(accelerator(target, toolchain.cc, exact))
        toolchain = replace(toolchain, accelerator=by)
        limits = _GPU_LIMITS
        plan = gpu_plan(nest.lifted, target, params, lines, known, by.limits)
        chosen = plan.configurations(plan.default)
        _test_legality(nest, nest.lifted.programs, chosen, MODELS[target])
        plan.part(plan.default)  # what cannot be emitted at all is told here, with its place
    jobs = options.config.tune.jobs or machine.cores
    bench = Workbench(toolchain, limits, threads=machine.cores, jobs=jobs)
    subject = subjects.subject_of(nest.lifted, report.bare.data, report.source.path)
    return Work(report, nest, options, plan, variables, subject, bench)


def _test_legality(
    nest: NestReport,
    programs: Sequence[MdhProgram],
    configurations: Sequence[Configuration],
    model: SystemModel,
) -> None:
    """Raises MDH607 where the choice without a search breaks a rule of the model."""
    for program, configuration in zip(programs, configurations, strict=True):
        reason = why_not_legal(configuration, program, model)
        if reason is not None:
            raise refuse("MDH607", f"no configuration is legal: {reason}", _directive_span(nest),
                         help="`fp(deterministic)` allows a fixed regrouping")  # fmt: skip


def _test_promises(nest: NestReport) -> None:
    """The laws that a directive promises for a user's function, on random values.  Raises MDH410."""
    assert nest.lifted is not None
    for program in nest.lifted.programs:
        f = program.hom.function
        if f is None or not f.promised:
            continue
        found = check_laws(f, program.functions, random.Random(0))
        if found is not None:
            directive = nest.lifted.nest.directive_span
            raise refuse(
                "MDH410",
                f"`{f.name}` is {found}",
                directive if not nest.regions else NO_SPAN,
                help="an operator must be associative and commutative; break ties by an index",
            )


def _directive_span(nest: NestReport) -> Span:
    """Of the directive in the file as it stands; unknown where regions shift it."""
    assert nest.lifted is not None
    return NO_SPAN if nest.regions else nest.lifted.nest.directive_span


def toolchain_of(command: CompileCommand) -> Toolchain:
    """The user's compiler and flags; optimising flags of ours where there are none.

    Raises MDH801, MDH829.
    """
    if (not_started := compiler_not_started(command, "MDH829")) is not None:
        raise Refusal(not_started)
    compiler = command.compiler or find_compiler(command.trees)
    if shutil.which(compiler) is None:
        raise refuse("MDH801", f"the compiler `{compiler}` was not found",
                     help="name another one in the compile command after `--`")  # fmt: skip
    flags = command.flags
    if not any(f.startswith("-O") for f in flags):
        flags = (*flags, *DEFAULT_FLAGS)
    return Toolchain((compiler,), flags)


def _only(space: Space, point: Point) -> Space:
    """The space that has just this point."""
    return Space(tuple((name, (point.get(name, values[0]),)) for name, values in space.parameters))


def _locked_point(work: Work) -> Point | None:
    try:
        lock = locks.read(work.options.lock_path)
    except locks.LockError:
        return None
    machine = fingerprint(work.bench.toolchain, work.bench.threads)
    block = locks.find(lock, work.lock_name, machine, work.size_class)
    if block is None or block.get("source_hash") != work.hash:
        return None
    point = block.get("configuration", {}).get("point")
    return dict(point) if isinstance(point, dict) else None


def tuned(work: Work, space: Space, budget: Budget, stage: str, tell: Tell) -> TuneResult:
    plan, options = work.plan, work.options
    tune_options = options.config.tune
    last = _LAST_OF_VERIFY if stage == "verify" else _LAST_IF_FORCED if options.force else _LAST
    settings = Settings(
        budget=budget,
        strategy=tune_options.strategy if tune_options.strategy != "auto" else Settings().strategy,
        seed=tune_options.seed,
        style=subjects.data_style(plan.lifted),
        bitwise=plan.lifted.nest.directive.fp == "exact",
        resume=options.resume,
        replay=options.replay,
        resident=isinstance(plan, GpuPlan) and _in_data_region(work),
        final_seconds=last[0],
        final_rounds=last[1],
    )
    sizes = work.variables
    ladder = _ladder(plan, sizes)
    final = cases_for(
        work.subject, ladder, style=settings.style, seed=settings.seed or 1, bitwise=settings.bitwise
    )
    thorough = Thorough(
        ladder,
        specials_of(plan.lifted, work.bench.toolchain.flags),
        subjects.large_sizes(plan.lifted, sizes),
        settings.style,
        settings.bitwise,
        settings.seed or 1,
    )
    quick = _quick(ladder, settings, work.bench.threads)
    done = 0

    def told(evaluation: Evaluation) -> None:
        nonlocal done
        done += 1
        tell("tuning", done, budget.evaluations or 0)

    store = _store(options) if stage in ("all", "tune") and not budget.nothing else None
    context = Context(
        short_name(work.nest.name),
        work.hash,
        fingerprint(work.bench.toolchain, work.bench.threads),
        work.size_class,
        " ".join(work.bench.toolchain.flags),
        work.bench.toolchain.version,
        settings.seed,
        VERSION,
    )
    try:
        return tune(
            work.bench,
            work.subject,
            plan.candidate,
            space,
            sizes,
            final,
            estimate=plan.estimate if isinstance(plan, kernels.Plan) else None,
            start=plan.starts if not budget.nothing else (),
            quick_cases=quick,
            thorough=thorough,
            settings=settings,
            store=store,
            context=context if store is not None else None,
            tell=told,
        )
    finally:
        if store is not None:
            store.close()


def _in_data_region(work: Work) -> bool:
    """Whether the nest stands in a statement while which its arrays stay on the device."""
    at = work.plan.lifted.nest.span.start
    return any(region.span.start <= at < region.span.end for region in work.report.data)


def _ladder(plan: kernels.Plan | GpuPlan, variables: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes to compare on: 0, 1, primes, around tiles; leading dimensions as large as they must be."""
    lifted = plan.lifted
    tried = size_ladder(
        subjects.size_ranges(lifted), _tiles(plan), limit=math.inf, cost=lambda sizes: 0, at_most=60
    )
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for sizes in tried:
        fits = subjects.repaired(lifted, sizes)
        if fits is not None and subjects.work(lifted, fits) <= subjects.MOST_WORK:
            found.setdefault(tuple(fits.values()), fits)
    return list(found.values())[:24] or [dict(variables)]  # nothing small: fixed or bound-together sizes


def _store(options: Options) -> Store:
    path = options.database_path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Store(path)
    except (OSError, StoreError) as error:
        raise refuse("MDH803", f"the tuning database `{path.name}` cannot be used: {error}") from None


def _tiles(plan: kernels.Plan | GpuPlan) -> list[int]:
    """Extents around which the ladder of sizes goes: vectors, register tiles, small blocks, host loops'."""
    found = {int(v) for v in plan.default.values() if isinstance(v, int) and 1 < v <= 96}
    loops = iterations.host_loops(plan.lifted.program, plan.params)
    return sorted({*sorted(found)[-4:], *(x.size.step for x, _ in loops if x.size.step > 1)})


def _quick(ladder: list[dict[str, int]], settings: Settings, threads: int) -> list[Case]:
    """A first comparison on one odd size, before a candidate's time counts."""
    odd = [s for s in ladder if all(v > 3 for v in s.values())] or ladder
    chosen = odd[:1] + odd[-1:] if len(odd) > 1 else odd
    data = EXACT_DATA[settings.style]
    return [Case(s, data, threads, settings.seed or 1, settings.bitwise) for s in chosen]


# --------------------------------------------------------------------------- results


def _improvement(work: Work, result: TuneResult, stage: str) -> Improvement:
    plan, options = work.plan, work.options
    if result.problem is not None:
        raise Refusal(_problem(result.problem))
    findings = [Finding(d, work.report.source) for d in result.diagnostics]
    wrong = [e.outcome for e in result.wrong]
    if wrong:
        notes = (_CONTRACTION,) if plan.lifted.nest.directive.fp == "exact" else ()
        findings.append(_about(work, "MDH701", f"emitted code gave a wrong result: {wrong[0].reason}", notes))
    # slow ones are no fault, wrong ones were told
    expected = (OK, CUT_OFF, WRONG_RESULT)
    failed = [e.outcome for e in result.evaluations if e.outcome.kind not in expected]
    if failed:
        counts = Counter(outcome.kind for outcome in failed)
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
        reason = failed[0].reason
        findings.append(_about(work, "MDH606", f"configurations were rejected: {kinds}", (reason,)))
    base = Improvement(
        work.nest.name,
        plan.expression(result.winner.point if result.winner is not None else {}),
        work.target,
        sizes=work.size_class,
        outcomes=result.reasons if len(result.evaluations) > 1 else {},
    )
    winner = result.winner
    if winner is None:
        return replace(base, findings=tuple(findings))
    proof = _certificate(work, winner) if stage in _CERTIFIED else None
    refuted = _refuted(work, proof)
    verdict = _verdict(work, winner, stage)
    spliceable = (not verdict or options.force) and not refuted and work.nest.replaceable
    findings += refuted
    if not options.force:  # with --force the summary's figures say it
        findings += verdict
    part, gpu_part = None, None
    if spliceable and stage in ("all", "splice"):
        after = kernels.after_text(plan.lifted)
        if isinstance(plan, GpuPlan):
            gpu_part = plan.part(winner.point)
            text, call = beside.include(beside.file_name(work.report.source.path, work.target)), gpu_part.call
        else:
            kernel = plan.kernel(winner.point)
            text, call = kernel.text, kernel.call
        part = splice_part(work.report, plan.lifted.nest, text, call, after)
    return replace(
        base,
        configuration=dict(winner.point),
        verification=winner.verification,
        speedup=winner.ratio if stage != "verify" else None,
        part=part,
        gpu_part=gpu_part,
        entry=_lock_entry(work, winner),
        findings=tuple(findings),
        certificate=proof,
    )


def _certificate(work: Work, winner: Winner) -> Certificate | str:
    if isinstance(work.plan, GpuPlan):
        return "it covers stages for the processor"
    plan, point = work.plan.formed(winner.point)
    chosen = zip(plan.programs, plan.configurations(point), strict=True)
    lowered = [lower(program, configuration, plan.machine) for program, configuration in chosen]
    tiled = plan.kernel(point).tiled
    return certified.certified(plan.lifted.nest, plan.lifted.program, lowered, tiled)


def _refuted(work: Work, proof: Certificate | str | None) -> list[Finding]:
    if not isinstance(proof, Certificate) or not proof.refuted:
        return []
    first, *others = proof.refuted
    return [_about(work, "MDH702", f"certificate is refuted: {first.name}",
                   (f"{first.subject}: {first.detail}", *map(str, others[:3])))]  # fmt: skip


def _problem(outcome: Outcome) -> Diagnostic:
    if outcome.kind == COMPILE_FAILED:
        return Diagnostic("MDH802", "the unmodified file does not compile", notes=(outcome.reason,),
                          help="give the compile command after `--`")  # fmt: skip
    return Diagnostic("MDH804", f"the nest cannot be run by itself: {outcome.reason}")


def _verdict(work: Work, winner: Winner, stage: str) -> list[Finding]:
    """Why a verified candidate is not worth splicing."""
    if stage == "verify":
        return []
    least = work.options.config.tune.min_speedup
    taken = winner.measurement
    if taken.ratio.low > least:
        return []
    noise = taken.noise(work.nest.name, least)
    if noise is not None:
        return [Finding(replace(noise, file=work.report.source.path), work.report.source)]
    headline = (
        f"best version runs {taken.ratio.median:.2f} x as fast as the original"
        f" (95 % interval {taken.ratio.low:.2f} to {taken.ratio.high:.2f}); {least:g} x is asked for"
    )
    return [_about(work, "MDH603", headline)]


def _about(work: Work, code: str, headline: str, notes: tuple[str, ...] = ()) -> Finding:
    line = work.nest.line
    span = work.report.source.line_span(line)
    return Finding(
        Diagnostic(code, headline, work.report.source.path, span, notes=notes), work.report.source
    )


def _lock_entry(work: Work, winner: Winner) -> locks.Entry:
    tune_options = work.options.config.tune
    return locks.Entry(
        work.lock_name,
        fingerprint(work.bench.toolchain, work.bench.threads),
        work.size_class,
        work.hash,
        {"point": dict(winner.point)},
        text_hash(work.plan.candidate(winner.point, described=True)),
        winner.ratio,
        {name: v for name, v in winner.verification.as_json().items() if name != "notes"},
        tune_options.seed,
        tune_options.strategy,
        tune_options.budget,
        _versions(work.bench.toolchain),
    )


def _versions(toolchain: Toolchain) -> dict[str, str]:
    found = {"mdh-lift": VERSION, "compiler": toolchain.version}
    gpu = toolchain.accelerator
    if gpu is not None:
        found |= {f"compiler for {gpu.target}": gpu.version, "device": gpu.device}
    return found
