"""Tuning one nest and what may be spliced of it.

    plan -> subject -> (search) -> verify -> measure -> part, lock entry

The verdict is about the user's own compile command plus ``-fopenmp``; without one, about
``DEFAULT_FLAGS``.  Nothing becomes a ``SplicePart`` that was not compiled, run and compared here, in this run
or, for `splice` and `--frozen`, in one that is recorded (``verified``).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from certify.obligations import Certificate
from emit.gpu_file import GpuPart
from emit.openmp_file import OpenmpPart
from frontend_c.preprocess import CompileCommand, compiler_not_started, find_compiler
from lifter.lift import LiftedNest
from lowering.lower import lower
from lowering.machine import SystemModel, this_machine
from lowering.parameters import Configuration, why_not_legal
from lowering.point import Point
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.ir import MdhProgram
from mdh_core.laws import check_laws
from mdh_core.rounding import rounds_products
from mdh_core.source import NO_SPAN, SourceFile, Span
from mdh_lift import beside, certified, kernels, macros, nest_sizes, recorded, verified
from mdh_lift import subject as subjects
from mdh_lift.classes import SeveralPlan
from mdh_lift.findings import Finding
from mdh_lift.gpu_plans import MODELS, GpuPlan, gpu_plan
from mdh_lift.outlined import OutlinedPlan, outlined
from mdh_lift.pipeline import (
    FileReport,
    NestReport,
    Options,
    lines_of,
    macros_of,
    short_name,
    source_hash,
    splice_part,
    style_of,
    target_of,
)
from mdh_lift.run_search import Tell, only, run
from mdh_lift.splice import SplicePart
from tuning import lock as locks
from tuning.accelerator import accelerator, with_limits
from tuning.budget import Budget, parse_budget
from tuning.harness import Subject
from tuning.measure import Measurement, Ratio
from tuning.processes import TIMED_OUT
from tuning.records import IN_LOCK, SearchRecord
from tuning.replay import ReplayError, replayed
from tuning.results import TuneResult, Winner
from tuning.runner import COMPILE_FAILED, CUT_OFF, OK, WRONG_RESULT, Limits, Outcome, Workbench
from tuning.space import is_among
from tuning.store import StoreError
from tuning.toolchain import Toolchain
from tuning.verify import VerifySummary

DEFAULT_FLAGS = ("-O3", "-march=native")
FIXED = "fixed"  # the size class of a nest without integer parameters
_CONTRACTION = (
    "under `fp(exact)` every bit counts, and compilers choose for each loop whether a*b + c is rounded once"
    " or twice; `-ffp-contract=off` in the compile command makes them agree"
)
_CERTIFIED = ("verify", "splice", "all")  # stages with a certificate
# drivers reserve addresses for all memory there is, and OpenCL compiles kernels when they are first called
_GPU_LIMITS = Limits(compile_seconds=180.0, run_seconds=120.0, memory_bytes=1 << 46)


@dataclass(frozen=True, slots=True)
class ClassResult:
    """What became of one class of sizes: the kernel that runs there, and how much faster the nest is."""

    sizes: str
    configuration: Mapping[str, object]
    speedup: Ratio

    def as_json(self) -> dict[str, object]:
        return {
            "sizes": self.sizes, "configuration": dict(self.configuration), "speedup": asdict(self.speedup)
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Improvement:
    """What tuning made of a nest; ``part`` is there where it may be spliced.

    sizes      that were tuned for, as text
    outcomes   number of evaluations per kind of outcome; empty where the cost model chose
    apart      what it has in the file beside the source: for a GPU, or where the style is `outline`
    entries    for the lock file
    classes    where there are kernels for several classes of sizes: what became of each
    certificate  of the configuration, or why there is none; None where none was asked for
    measurement  that the speedup is from
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
    apart: tuple[GpuPart | OpenmpPart, ...] = ()
    entries: tuple[locks.Entry, ...] = ()
    findings: tuple[Finding, ...] = ()
    certificate: Certificate | str | None = None
    classes: tuple[ClassResult, ...] = ()
    measurement: Measurement | None = None

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
        if self.classes:
            rows += [("speedup", f"{_ratio_text(c.speedup)} at {c.sizes}") for c in self.classes]
        elif self.speedup is not None:
            at = " at the fixed sizes" if self.sizes == FIXED else f" at {self.sizes}"
            rows.append(("speedup", _ratio_text(self.speedup) + at))
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
        } | ({"classes": [c.as_json() for c in self.classes]} if self.classes else {})


def _ratio_text(r: Ratio) -> str:
    return f"{r.median:.2f} x, {r.confidence:.0%} interval {r.low:.2f} to {r.high:.2f}"


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
    plan: kernels.Plan | GpuPlan | SeveralPlan
    variables: Mapping[str, int]  # the sizes that are tuned for
    subject: Subject
    bench: Workbench
    record: SearchRecord | None = None  # that is replayed

    @property
    def target(self) -> str:
        plan = self.plan.chosen[0].plan if isinstance(self.plan, SeveralPlan) else self.plan
        return plan.target.name if isinstance(plan, GpuPlan) else "openmp"

    @property
    def size_class(self) -> str:
        return _size_class(self.variables)

    @property
    def hash(self) -> str:
        return _hash(self.report, self.plan.lifted)

    @property
    def lock_name(self) -> str:
        """The nest in the lock file: its path from the lock's directory, without machine paths."""
        return _lock_name(self.report, self.nest, self.options)


def _size_class(variables: Mapping[str, int]) -> str:
    return ",".join(f"{n}={v}" for n, v in sorted(variables.items())) or FIXED


def _hash(report: FileReport, lifted: LiftedNest) -> str:
    text = SourceFile(report.source.path, report.bare.data)
    return source_hash(text.data, lifted.nest, macros.definitions(text, report.command))


def _lock_name(report: FileReport, nest: NestReport, options: Options) -> str:
    path = os.path.relpath(report.source.path, options.root)
    return f"{path}::{short_name(nest.name)}"


def improve(report: FileReport, nest: NestReport, options: Options, stage: str, tell: Tell) -> Improvement:
    """Search, emit, verify and measure, as far as ``stage`` says: tune, verify, bench, splice or all.

    ``verify``, ``bench`` and ``splice`` take the locked configuration if it was made from this source on
    such a machine, else that of a similar machine (MDH613), else the cost model's choice.  Raises ``Refusal``
    where nothing can be run.  With ``options.runs_nothing`` nothing is run: results are recorded ones.
    """
    work = prepare(report, nest, options)
    if options.locked and stage == "tune" and work.record is None:
        return as_locked(work)
    result, told = chosen(work, stage, tell)
    return improvement(work, result, stage, told)


def chosen(work: Work, stage: str, tell: Tell) -> tuple[TuneResult, tuple[Finding, ...]]:
    """What a search ends with, or what lock file or database say; and what there is to tell about that."""
    options = work.options
    if work.record is not None:
        return _taken(work, work.record, "MDH523"), ()
    if options.runs_nothing:
        return _known(work, stage), ()
    budget = parse_budget(options.config.tune.budget) if stage in ("all", "tune") else Budget(0)
    try:
        if options.locked:
            return _locked(work, stage, tell), ()
        found = recorded.locked_point(work) if budget.nothing else None
        if found is not None:
            named = IN_LOCK if recorded.is_current(work, found) else recorded.LOCKED
            return run(work, only(work.plan.space, found), Budget(0), stage, tell, named), ()
        return _searched(work, budget, stage, tell)
    except StoreError as error:
        raise recorded.told(error) from None


def _taken(work: Work, record: SearchRecord, code: str) -> TuneResult:
    """The result of a record; a refusal with this code where the generator makes other code now."""
    try:
        return replayed(record, work.plan.candidate)
    except ReplayError as error:
        raise refuse(code, f"record {record.id} of `{work.lock_name}` does not fit: {error}",
                     help="tune again with this version") from None  # fmt: skip


def as_locked(work: Work) -> Improvement:
    """The locked choice, and nothing else.  Raises MDH520 where a search could change the lock file."""
    point = recorded.expect_locked(work)
    return Improvement(
        work.nest.name, work.plan.expression(point), work.target, work.size_class, dict(point)
    )


def _locked(work: Work, stage: str, tell: Tell) -> TuneResult:
    """The locked choice, without a change of the lock file."""
    point = recorded.expect_locked(work)
    return run(work, only(work.plan.space, point), Budget(0), stage, tell, IN_LOCK)


def _known(work: Work, stage: str) -> TuneResult:
    """What was compiled, run, compared and measured before.  Raises as ``verified.verified``.

    What else a search tried was told when it ran: a splice tells of what it puts in place.
    """
    result = _taken(work, verified.verified(work), "MDH522" if work.options.frozen else "MDH525")
    return replace(result, search=None) if stage == "splice" and result.winner is not None else result


def _searched(
    work: Work, budget: Budget, stage: str, tell: Tell
) -> tuple[TuneResult, tuple[Finding, ...]]:
    """A search, or without a budget one choice; with a similar machine's where there is none of this one."""
    options, plan = work.options, work.plan
    near = recorded.nearest(work) if options.resume and not recorded.is_tuned(work) else None
    if near is not None and recorded.is_usable(work, near.point):
        if budget.nothing or options.nearest:
            result = run(work, only(plan.space, near.point), Budget(0), stage, tell, recorded.NEAREST)
            if result.winner is not None or result.wrong:
                told = f"the configuration is that of {near.fingerprint} ({near.words})"
                note = "nothing was tuned on this machine; the code was compared and measured here"
                advice = f"`mdh-lift tune {work.report.source.path}` searches"
                found = _about(work, "MDH613", told, (note,), advice)
                return result, (found,)
        elif is_among(plan.space, near.point):
            told = f"the search starts from the choice of {near.fingerprint} ({near.words})"
            result = run(work, plan.space, budget, stage, tell, start=(near.point,))
            return result, (_about(work, "MDH614", told),)
    space = only(plan.space, plan.default) if budget.nothing else plan.space
    return run(work, space, budget, stage, tell), ()


def prepare(
    report: FileReport, nest: NestReport, options: Options, sizes: Mapping[str, int] | None = None
) -> Work:
    """What tuning a lifted nest needs; ``sizes`` of the integer variables instead of the usual ones."""
    assert nest.lifted is not None
    target = target_of(nest, options.target)
    _test_promises(nest)
    wanted = {**nest_sizes.sizes_of(nest.lifted), **(sizes or {})}
    stated = sizes or nest.lifted.nest.directive.sizes
    variables = (subjects.repaired if stated else subjects.fitting)(nest.lifted, wanted)
    if variables is None:
        raise refuse("MDH804", "no sizes were found for which all accesses are inside the arrays",
                     _directive_span(nest),
                     help="state sizes that belong together with a `sizes(...)` clause")  # fmt: skip
    params = nest_sizes.parameter_values(nest.lifted, variables)
    named = nest_sizes.all_stated(nest.lifted, sizes)
    if options.replay:
        return _as_recorded(report, nest, options, target, variables, params, named)
    toolchain = toolchain_of(report.command)
    lines, known = lines_of(report, nest), macros_of(report)
    machine = this_machine()
    limits = Limits()
    plan: kernels.Plan | GpuPlan
    if target == "openmp":
        plan = kernels.planned(nest.lifted, params, lines, known, named)
        if style_of(nest, options.style, options.config.splice.style) == "outline":
            plan = outlined(plan, report.source.path, report.directory)
        formed, default = plan.formed(plan.default)
        _test_legality(nest, formed.programs, formed.configurations(default), machine.model)
    else:
        exact = nest.lifted.nest.directive.fp == "exact" or any(map(rounds_products, nest.lifted.programs))
        if options.runs_nothing:
            name, own = _lock_name(report, nest, options), _hash(report, nest.lifted)
            by = verified.gpu_of(
                report, nest, options, name, own, target, toolchain, exact, machine.cores
            )  # asking which device there is would run code
        else:
            by = with_limits(accelerator(target, toolchain.cc, exact))
        toolchain = replace(toolchain, accelerator=by)
        limits = _GPU_LIMITS
        plan = gpu_plan(nest.lifted, target, params, lines, known, by.limits, report.directory)
        chosen = plan.configurations(plan.default)
        _test_legality(nest, nest.lifted.programs, chosen, MODELS[target])
        plan.part(plan.default)  # what cannot be emitted at all is told here, with its place
    jobs = options.config.tune.jobs or machine.cores
    bench = Workbench(toolchain, limits, threads=machine.cores, jobs=jobs, turns=options.turns)
    subject = subjects.subject_of(nest.lifted, report.bare.data, report.source.path)
    return Work(report, nest, options, plan, variables, subject, bench)


def _as_recorded(
    report: FileReport,
    nest: NestReport,
    options: Options,
    target: str,
    variables: Mapping[str, int],
    params: Mapping[str, int],
    named: bool,
) -> Work:
    """A nest as it was for the search that is replayed: with its machine, without a compiler."""
    assert nest.lifted is not None
    here = ""
    if target == "openmp":  # which device there is for another is found out by running code
        with contextlib.suppress(Refusal):
            here = recorded.here(toolchain_of(report.command))
    name, size_class = _lock_name(report, nest, options), _size_class(variables)
    wanted = recorded.Wanted(name, _hash(report, nest.lifted), size_class, target, here)
    record = recorded.to_replay(options, wanted)
    lines, known = lines_of(report, nest), macros_of(report)
    plan: kernels.Plan | GpuPlan
    if target == "openmp":
        plan = recorded.on_machine(
            kernels.planned(nest.lifted, params, lines, known, named), record.machine.get("machine")
        )
        if style_of(nest, options.style, options.config.splice.style) == "outline":
            plan = outlined(plan, report.source.path, report.directory)
    else:
        device = recorded.device_of(record)
        plan = gpu_plan(nest.lifted, target, params, lines, known, device, report.directory)
    subject = subjects.subject_of(nest.lifted, report.bare.data, report.source.path)
    return Work(report, nest, options, plan, variables, subject, Workbench(), record)


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


# --------------------------------------------------------------------------- results


def improvement(
    work: Work, result: TuneResult, stage: str, told: Sequence[Finding] = ()
) -> Improvement:
    plan, options = work.plan, work.options
    if result.problem is not None:
        raise Refusal(_at(work, _problem(result.problem)))
    findings = [*told, *(Finding(_at(work, d), work.report.source) for d in result.diagnostics)]
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
    verdict = verdict_on(work, winner, stage)
    spliceable = (not verdict or options.force) and not refuted and work.nest.replaceable
    findings += refuted
    if not options.force:  # with --force the summary's figures say it
        findings += verdict
    part: SplicePart | None = None
    apart: tuple[GpuPart | OpenmpPart, ...] = ()
    if spliceable and stage in ("all", "splice"):
        text, call, apart = _spliced(work, winner.point)
        part = splice_part(work.report, plan.lifted.nest, text, call, kernels.after_text(plan.lifted))
    return replace(
        base,
        configuration=dict(winner.point),
        verification=winner.verification,
        speedup=winner.ratio if stage != "verify" else None,
        part=part,
        apart=apart,
        entries=entries_of(work, result.record, stage),
        findings=tuple(findings),
        certificate=proof,
        measurement=winner.measurement if stage != "verify" else None,
    )


def entries_of(work: Work, record: SearchRecord | None, stage: str) -> tuple[locks.Entry, ...]:
    """What a result writes into the lock file; nothing where that says it already."""
    if record is None or recorded.is_of_lock(work, record, stage):
        return ()
    return (recorded.entry(work, record),)


def _spliced(work: Work, point: Point) -> tuple[str, str, tuple[GpuPart | OpenmpPart, ...]]:
    """Text of the kernel's region, the call, and what stands in the file beside the source."""
    plan = work.plan
    match plan:
        case SeveralPlan():
            apart = plan.parts()
            call = plan.dispatch([p.call for p in apart]) if apart else plan.kernel(point).call
        case GpuPlan() | OutlinedPlan():
            apart = (plan.part(point),)
            call = apart[0].call
        case _:
            apart, call = (), plan.kernel(point).call
    if apart:
        return beside.include(beside.file_name(work.report.source.path, work.target)), call, apart
    assert not isinstance(plan, GpuPlan)
    return plan.kernel(point).text, call, ()


def _certificate(work: Work, winner: Winner) -> Certificate | str:
    if isinstance(work.plan, SeveralPlan):
        found = [_certificate_of(work, c.plan, c.point) for c in work.plan.chosen]
        own = [c for c in found if isinstance(c, Certificate)]
        if len(own) < len(found):
            return next(c for c in found if isinstance(c, str))
        return Certificate(tuple(o for c in own for o in c.obligations))
    return _certificate_of(work, work.plan, winner.point)


def _certificate_of(work: Work, chosen: kernels.Plan | GpuPlan, at: Point) -> Certificate | str:
    if isinstance(chosen, GpuPlan):
        return "it covers stages for the processor"
    plan, point = chosen.formed(at)
    parts = zip(plan.programs, plan.configurations(point), strict=True)
    lowered = [lower(program, configuration, plan.machine) for program, configuration in parts]
    kernel = plan.kernel(point)
    return certified.certified(plan.lifted.nest, plan.lifted.program, lowered, kernel.tiled, kernel.fixed)


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
    advice = ""
    if outcome.data.get("how") == TIMED_OUT:
        advice = "name smaller sizes to tune for (`sizes(...)`), or give a longer --budget"
    elif "SIGSEGV" in outcome.reason or "SIGBUS" in outcome.reason:
        advice = (
            "declare the shapes of its arrays (`const float x[n][m]`): indices that are computed, or read"
            " from memory, are then inside of them"
        )
    return Diagnostic("MDH804", f"the nest cannot be run by itself: {outcome.reason}", help=advice)


def verdict_on(work: Work, winner: Winner, stage: str) -> list[Finding]:
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


def _at(work: Work, d: Diagnostic) -> Diagnostic:
    """With the nest's place where it has none."""
    if d.span:
        return d
    return replace(d, file=work.report.source.path, span=work.report.source.line_span(work.nest.line))


def _about(
    work: Work, code: str, headline: str, notes: tuple[str, ...] = (), advice: str = ""
) -> Finding:
    return Finding(_at(work, Diagnostic(code, headline, notes=notes, help=advice)), work.report.source)
