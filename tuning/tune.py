"""Tuning one nest for one size: every candidate is compared before its time counts.

A candidate is generated, compiled, compared with the original on a small odd size (if sizes vary), then run
at the size to tune for and timed; its values must have the original's digest, or compare within tolerance
where rounding occurs.  One that is slower than a multiple of the best so far is given up before that.  The
leaders and the cost model's choice are timed again in turn, and that choice stays unless another is surely
faster (``tuning.race``); the first of them that passes the full verification is measured against the original
in pairs.  Every outcome is stored.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lowering.point import Point
from lowering.space import Space
from mdh_core.diagnostics import Diagnostic, Refusal
from tuning.budget import DEFAULT_STRATEGY, STRATEGIES, Budget
from tuning.harness import ORIGINAL_ONLY, Candidate, Subject
from tuning.measure import measure, median, run_bench
from tuning.race import race
from tuning.records import IN_TURN, RACE, SEARCH, VERIFICATION, SearchRecord, Step, low_quantile
from tuning.replay import diagnostics_json, verification_json
from tuning.results import TuneResult as TuneResult
from tuning.results import Winner as Winner
from tuning.results import text_hash as text_hash
from tuning.runner import (
    DECLINED,
    HARNESS_FAILED,
    NOT_GENERATED,
    OK,
    ORIGINAL_FAILED,
    OVER_LIMITS,
    UNKNOWN,
    WRONG_RESULT,
    Outcome,
    Workbench,
)
from tuning.search import MODEL, Evaluation, SearchResult, first_choice, search
from tuning.space import Estimate
from tuning.store import Context, Record, Store, canonical
from tuning.verify import EXACT_DATA, Case, Thorough, VerifySummary, verify, verify_thoroughly

MakeCandidate = Callable[[Point], Candidate]
Tell = Callable[[Evaluation], None]
_CHECKED_AGAINST_ORIGINAL = 2.0  # seconds: a slower original is not run once per candidate
_LONG = 1.0  # seconds: of a longer original, one run tells how fast it is
_PATIENCE = 120.0  # seconds that an original may take, or as long as the search
_UNOPTIMISED = 20.0  # times as long as the original may take without optimisation
_NOT_STORED = (HARNESS_FAILED, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to tune.

    ``resident``: what counts at the end are times with the arrays on the device already (a data region).
    ``named``: what the search is called in the database, where the strategy does not say it.  ``described``:
    hash of the code of a point as the lock file has it.
    ``style``: data, as in ``verify.cases_for``; ``final_seconds`` and at least ``final_rounds``: the last
    measurement.
    """

    budget: Budget = field(default=Budget(evaluations=100))
    strategy: str = DEFAULT_STRATEGY
    seed: int = 1
    style: str = "sum"
    bitwise: bool = False
    resume: bool = True
    resident: bool = False
    final_seconds: float = 3.0
    final_rounds: int = 7
    sample_seconds: float = 0.1
    finalists: int = 8
    named: str = ""
    described: Callable[[Point], str] | None = None

    @property
    def shown_strategy(self) -> str:
        return self.named or (MODEL if self.budget.nothing else self.strategy)


@dataclass(frozen=True, slots=True)
class Reference:
    """One run of the original at the size to tune for."""

    digest: str
    inexact: bool
    seconds: float
    process_seconds: float  # with filling the arrays
    times: tuple[float, ...] = ()  # of single runs, the first included


def source_hash(subject: Subject) -> str:
    """Of the nest and what surrounds it: a candidate's text may depend on the file's types and macros."""
    return hashlib.sha256(subject.data + b"\0" + subject.nest).hexdigest()[:16]


def reference(
    bench: Workbench, subject: Subject, sizes: Mapping[str, int | float], settings: Settings
) -> Outcome:
    """Build and run the original by itself; ``data["reference"]`` of an ok outcome is a ``Reference``."""
    built = bench.build(subject, ORIGINAL_ONLY)
    if not built.ok:
        return built
    data = _exact_data(settings)
    ended = run_bench(
        bench,
        subject,
        built.data["program"],
        sizes,
        which=1,
        seconds=0.01,
        min_rounds=1,
        hard=_LONG,
        data=data,
        seed=settings.seed,
        wall=max(bench.limits.run_seconds, settings.budget.seconds or 0, _PATIENCE),
    )
    first = ended.data.get("first", {}).get("original")
    if not ended.ok or first is None:
        return ended if not ended.ok else Outcome(HARNESS_FAILED, "the original was not run")
    times = (first["seconds"], *(t[0] for t in ended.data["times"]))
    process = ended.data.get("seconds", 0.0) or first["seconds"]
    found = Reference(first["digest"], bool(first["inexact"]), min(times), process, times)
    return Outcome(OK, data={"reference": found})


def _exact_data(settings: Settings) -> str:
    return EXACT_DATA[settings.style]


# --------------------------------------------------------------------------- one candidate


@dataclass
class _Tuner:
    bench: Workbench
    subject: Subject
    make: MakeCandidate
    sizes: Mapping[str, int | float]
    quick: Sequence[Case]
    settings: Settings
    original: Reference
    store: Store | None
    context: Context | None
    tell: Tell
    thorough: Thorough | None = None
    made: dict[str, tuple[Candidate, str]] = field(default_factory=dict)  # point -> candidate, program
    by_text: dict[str, Evaluation] = field(default_factory=dict)
    search: int | None = None  # of the store
    begun: float = field(default_factory=time.monotonic)
    right: set[str] = field(default_factory=set)  # digests of results at that size

    def __post_init__(self) -> None:
        self.right.add(self.original.digest)

    def evaluate_batch(self, points: Sequence[Point], cut_off: float) -> list[Evaluation]:
        """Generate all, look all up, compile what is new in parallel, then compare and time one by one."""
        done: dict[str, Evaluation] = {}
        candidates: dict[str, Candidate] = {}
        for point in points:
            answer = self._generate(point)
            if isinstance(answer, Evaluation):
                done[canonical(point)] = answer
            else:
                candidates[canonical(point)] = answer
        built = self.bench.build_many(self.subject, list(candidates.values()))
        programs = dict(zip(candidates, built, strict=True))
        for point in points:
            key = canonical(point)
            if key not in done:
                done[key] = self._try(point, candidates[key], programs[key], cut_off)
            self._note(SEARCH, done[key])
            self.tell(done[key])
        return [done[canonical(p)] for p in points]

    def _generate(self, point: Point) -> Candidate | Evaluation:
        try:
            candidate = self.make(point)
        except (Refusal, ValueError) as error:
            return Evaluation(point, Outcome(NOT_GENERATED, str(error)[:400]), reused=True)
        self.made[canonical(point)] = (candidate, "")
        return self._known(point, text_hash(candidate)) or candidate

    def _note(self, phase: str, evaluation: Evaluation) -> None:
        """The next step of the search, for the store."""
        if self.store is None or self.search is None:
            return
        e, outcome = evaluation, evaluation.outcome
        at = time.monotonic() - self.begun
        self.store.step(
            self.search,
            Step(
                0, at, phase, canonical(e.point), outcome.kind, outcome.reason, e.times, e.text, e.reused
            ),
        )

    def _known(self, point: Point, digest: str) -> Evaluation | None:
        twin = self.by_text.get(digest)
        if twin is not None:
            return replace(twin, point=point, reused=True)
        s = self.settings
        if self.store is None or self.context is None or not s.resume or s.budget.nothing:
            return None
        record = self.store.find(self.context, canonical(point), digest)
        if record is None:
            return None
        seconds = low_quantile(record.times) if record.times else math.inf
        evaluation = Evaluation(
            point, Outcome(record.outcome, record.reason), seconds, True, digest, record.times
        )
        self.by_text[digest] = evaluation
        return evaluation

    def _try(self, point: Point, candidate: Candidate, built: Outcome, cut_off: float) -> Evaluation:
        twin = self.by_text.get(text_hash(candidate))
        if twin is not None:
            return self._keep(replace(twin, point=point, reused=True), text_hash(candidate))
        empty: tuple[float, ...] = ()
        outcome, times = built, empty
        if built.ok:
            self.made[canonical(point)] = (candidate, built.data["program"])
        if built.ok and built.data["over_limits"] and not self.settings.budget.nothing:
            outcome = Outcome(OVER_LIMITS, built.data["over_limits"])
        elif built.ok:
            outcome, times = self._compare_and_time(built.data["program"], cut_off)
        seconds = low_quantile(times) if outcome.ok and times else math.inf
        evaluation = Evaluation(
            point,
            Outcome(outcome.kind, outcome.reason),
            seconds,
            text=text_hash(candidate),
            times=tuple(times),
        )
        self.by_text[text_hash(candidate)] = evaluation
        return self._keep(evaluation, text_hash(candidate), times, candidate.configuration_json)

    def _keep(
        self, evaluation: Evaluation, digest: str, times: Sequence[float] = (), configuration: str = "{}"
    ) -> Evaluation:
        kept = evaluation.outcome.kind not in _NOT_STORED and not self.settings.budget.nothing
        if self.store is not None and self.context is not None and kept:  # one run is no measurement
            known = times or ((evaluation.seconds,) if evaluation.ok else ())
            outcome = evaluation.outcome
            record = Record(
                canonical(evaluation.point), outcome.kind, outcome.reason, tuple(known), digest, configuration
            )
            self.store.add(self.context, record)
        return evaluation

    def _compare_and_time(self, program: str, cut_off: float) -> tuple[Outcome, tuple[float, ...]]:
        at_size = self._is_quick_case_at_size()
        if not at_size:
            checked = self._check(program, self.quick)
            if not checked.ok:
                return checked, ()
        ended = self._time(program, cut_off)
        if not ended.ok:
            return ended, ()
        digest = ended.data["first"]["candidate"]["digest"]
        if digest not in self.right:
            if not self.original.inexact:
                return self._locate(program), ()
            if at_size or self.original.seconds <= _CHECKED_AGAINST_ORIGINAL:
                checked = self._check(program, [self._case_at_size()])
                if not checked.ok:
                    return checked, ()
                self.right.add(digest)
        return Outcome(OK), tuple(t[1] for t in ended.data["times"])

    def _is_quick_case_at_size(self) -> bool:
        """Is there no smaller size?  Then a candidate is timed before it is compared, on the same data."""
        data = _exact_data(self.settings)
        return all(c.sizes == self.sizes and c.data == data for c in self.quick)

    def _check(self, program: str, cases: Sequence[Case]) -> Outcome:
        """Whether the cases compare equal; declining is no fault at a small size.

        Where the original rounds, its result without optimisation is right as well: it is asked for what
        differs from the usual one only.
        """
        allowed = self._start_seconds + 2 * self.original.process_seconds + 12 * self.original.seconds
        seconds = min(max(self.bench.limits.run_seconds, 12 * self.original.seconds), allowed)
        found = verify(self.bench, self.subject, program, cases, seconds=seconds).outcome
        if found.kind != WRONG_RESULT or not self.original.inexact:
            return found
        built = self.bench.build_plain(self.subject)
        if not built.ok:
            return found
        seconds += _UNOPTIMISED * self.original.seconds
        plain = built.data["library"]
        again = verify(self.bench, self.subject, program, cases, seconds=seconds, plain=plain).outcome
        return again if again.ok else found

    @property
    def _longest(self) -> float:
        """Seconds that a candidate may run, whatever else allows more: not much longer than the original."""
        return max(self.bench.limits.run_seconds, 2 * self.original.seconds)

    @property
    def _start_seconds(self) -> float:
        """A program has so long beside its own work: drivers start slowly, and OpenCL compiles."""
        return 5.0 if self.bench.toolchain.accelerator is None else 60.0

    def _case_at_size(self) -> Case:
        s = self.settings
        return Case(self.sizes, _exact_data(s), self.bench.threads, s.seed, s.bitwise)

    def _locate(self, program: str) -> Outcome:
        """The digests differ: find the first wrong element."""
        found = self._check(program, [self._case_at_size()])
        return (
            found
            if not found.ok
            else Outcome(WRONG_RESULT, "another result at the size to tune for, not repeatable")
        )

    def _time(self, program: str, cut_off: float) -> Outcome:
        alone = self.settings.budget.nothing  # nothing to compare it with: one run, for its digest
        wall = self._longest
        if not alone:  # a cut would save nothing; on a busy machine it loses the only candidate
            slowest = cut_off if math.isfinite(cut_off) else 20 * self.original.seconds
            wall = min(wall, self._start_seconds + 2 * self.original.process_seconds + 10 * slowest)
        with self.bench.measuring():
            return run_bench(
                self.bench,
                self.subject,
                program,
                self.sizes,
                which=2,
                seconds=0.01 if alone else self.settings.sample_seconds,
                min_rounds=1 if alone else 3,
                cut_off=cut_off,
                data=_exact_data(self.settings),
                seed=self.settings.seed,
                wall=wall,
                resident=self.bench.toolchain.accelerator is not None,
                timed=not alone,
            )

    # ----------------------------------------------------------------------- the end of a search

    def program_of(self, point: Point) -> tuple[Candidate, str] | None:
        """The candidate of a point and its program, built now where the evaluation came from the store."""
        candidate, program = self.made[canonical(point)]
        if not program:
            built = self.bench.build(self.subject, candidate)
            if not built.ok:
                return None
            program = built.data["program"]
        return candidate, program

    def race(self, leaders: Sequence[Evaluation], incumbent: int, seconds: float) -> list[float]:
        """Times of the leaders in turn; recorded as such, so that a replay decides the same."""
        programs = [self.program_of(e.point) for e in leaders]

        def sample(k: int) -> float:
            made = programs[k]
            ended = self._time(made[1], math.inf) if made else Outcome(HARNESS_FAILED)
            times = [t[1] for t in ended.data.get("times", ())] if ended.ok else []
            return median(times) if times else math.inf  # what a run takes, not what it may take

        times = race(sample, len(leaders), incumbent, seconds)
        earlier = [e for e in self.by_text.values() if e.outcome.reason == IN_TURN]
        for e in earlier:
            self._record(replace(e, outcome=Outcome(OK)))
        for e, t in zip(leaders, times, strict=True):
            if math.isfinite(t):
                timed = replace(e, outcome=Outcome(OK, IN_TURN), seconds=t, times=(t,), reused=False)
                self._record(timed)
                self._note(RACE, timed)
        return times

    def _record(self, evaluation: Evaluation) -> None:
        candidate = self.made[canonical(evaluation.point)][0]
        self._keep(evaluation, text_hash(candidate), configuration=candidate.configuration_json)

    def choose(self, result: SearchResult, final: Sequence[Case]) -> tuple[Winner | None, SearchResult]:
        """The best leader that passes the full verification and can be timed; those before it are marked."""
        for leader in result.leaders:
            made = self.program_of(leader.point)
            if made is None:
                continue
            candidate, program = made
            if self.thorough is None:
                summary = verify(self.bench, self.subject, program, final)
            else:
                more = replace(self.thorough, seconds=self.original.seconds)
                summary = verify_thoroughly(self.bench, self.subject, program, final, more)
            why = summary.outcome
            if summary.ok:
                winner = self._win(leader.point, candidate, program, summary)
                if winner.measurement.fault is None:
                    return winner, result
                why = winner.measurement.fault
            elif why.ok:
                why = Outcome(DECLINED, "its guard never let it run")
            result = _marked(result, leader.point, why)
            self._keep(Evaluation(leader.point, why), text_hash(candidate))
            self._note(VERIFICATION, Evaluation(leader.point, why, text=text_hash(candidate)))
        return None, result

    def _win(self, point: Point, candidate: Candidate, program: str, summary: VerifySummary) -> Winner:
        s = self.settings
        wall = self.bench.limits.run_seconds + 6 * s.final_seconds + 60 * self.original.seconds
        taken = measure(
            self.bench,
            self.subject,
            program,
            self.sizes,
            budget=s.final_seconds,
            least=s.final_rounds,
            data=_exact_data(s),
            seed=s.seed,
            wall=wall,
            resident=s.resident,
        )
        return Winner(point, candidate, program, text_hash(candidate), summary, taken)


def _marked(result: SearchResult, point: Point, outcome: Outcome) -> SearchResult:
    """The result with another outcome for one point."""

    def mark(evaluations: Sequence[Evaluation]) -> tuple[Evaluation, ...]:
        return tuple(Evaluation(point, outcome) if e.point == point else e for e in evaluations)

    return replace(result, evaluations=mark(result.evaluations), leaders=mark(result.leaders))


# --------------------------------------------------------------------------- the whole


def tune(
    bench: Workbench,
    subject: Subject,
    make_candidate: MakeCandidate,
    space: Space,
    sizes: Mapping[str, int | float],
    final_cases: Sequence[Case],
    *,
    estimate: Estimate | None = None,
    start: Sequence[Point] = (),
    alternatives: Sequence[Point] = (),
    quick_cases: Sequence[Case] | None = None,
    thorough: Thorough | None = None,
    settings: Settings = Settings(),
    store: Store | None = None,
    context: Context | None = None,
    tell: Tell = lambda evaluation: None,
) -> TuneResult:
    """Search ``space`` for the fastest candidate at ``sizes`` that passes ``final_cases``.

    ``thorough``: what is compared beyond that before a candidate wins.  ``start``: points to try first;
    ``alternatives``: as in ``search``.  ``make_candidate`` may raise ``Refusal`` or ``ValueError`` where
    there is no code for a point.  With budget 0, or without Kernel Tuner (MDH605 among the diagnostics), the
    cost model's choice is taken.
    """
    ran = reference(bench, subject, sizes, settings)
    if ran.kind == ORIGINAL_FAILED and "SIGFPE" in ran.reason and settings.style != "positive":
        settings = replace(settings, style="positive")
        ran = reference(bench, subject, sizes, settings)
    if not ran.ok:
        return TuneResult(None, None, ran)
    original: Reference = ran.data["reference"]
    quick = quick_cases if quick_cases is not None else _quick_cases(sizes, bench.threads, settings)
    tuner = _Tuner(
        bench, subject, make_candidate, sizes, quick, settings, original, store, context, tell, thorough
    )
    if store is not None and context is not None:
        tuner.search = store.begin(context, settings.shown_strategy, str(settings.budget))
    found, diagnostics = _search(tuner, space, estimate, start, alternatives)
    winner, found = tuner.choose(found, final_cases)
    if winner is None:
        reasons = _counts(found.reasons) or "none was tried within the budget"
        diagnostics += (Diagnostic("MDH607", f"no candidate survived: {reasons}"),)
    record = _finished(tuner, found, winner, diagnostics)
    return TuneResult(winner, found, None, original.seconds, diagnostics, record)


def _finished(
    tuner: _Tuner, found: SearchResult, winner: Winner | None, diagnostics: Sequence[Diagnostic]
) -> SearchRecord | None:
    """The record of a search that ended, with what won."""
    if tuner.store is None or tuner.search is None:
        return None
    results: dict[str, Any] = {
        "original": tuner.original.times,
        "stopped": found.stopped,
        "diagnostics": diagnostics_json(diagnostics),
    }
    if found.strategy == MODEL and tuner.settings.shown_strategy in STRATEGIES:
        results["strategy"] = MODEL  # Kernel Tuner is missing
    if winner is not None:
        described = tuner.settings.described
        results |= {
            "winner": canonical(winner.point),
            "winner_text": winner.text_hash,
            "locked_text": described(winner.point) if described is not None else "",
            "verification": verification_json(winner.verification),
            "pairs": winner.measurement.pairs,
            "measured": winner.measurement.outcome.kind,
        }
    return tuner.store.finish(tuner.search, **results)


def _quick_cases(sizes: Mapping[str, int | float], threads: int, settings: Settings) -> list[Case]:
    primes = (37, 41, 29, 13, 11, 7, 5, 3)
    names = [n for n, v in sizes.items() if isinstance(v, int)]
    many = max(0, len(names) - 2)
    small: dict[str, int | float] = dict(sizes)
    for k, name in enumerate(names):
        small[name] = min(int(sizes[name]), primes[min(k + many, 7)])
    return [Case(small, _exact_data(settings), threads, settings.seed, settings.bitwise)]


def _search(
    tuner: _Tuner,
    space: Space,
    estimate: Estimate | None,
    start: Sequence[Point],
    alternatives: Sequence[Point],
) -> tuple[SearchResult, tuple[Diagnostic, ...]]:
    s = tuner.settings
    if s.budget.nothing:
        return first_choice(space, tuner.evaluate_batch, order_hint=estimate, seed=s.seed), ()
    try:
        found = search(
            space,
            tuner.evaluate_batch,
            order_hint=estimate,
            start=start,
            alternatives=alternatives,
            budget=s.budget,
            strategy=s.strategy,
            seed=s.seed,
            race=tuner.race,
            finalists=s.finalists,
        )
    except Refusal as refusal:
        found = first_choice(space, tuner.evaluate_batch, order_hint=estimate, seed=s.seed)
        return found, (refusal.diagnostic,)
    return found, ()


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in reasons.items())


def as_json(result: TuneResult) -> dict[str, Any]:
    """A plain summary for reports."""
    best = result.winner
    return {
        "evaluations": len(result.evaluations),
        "outcomes": result.reasons,
        "original_seconds": None if math.isnan(result.original_seconds) else result.original_seconds,
        "configuration": json.loads(best.candidate.configuration_json) if best else None,
        "speedup": [best.ratio.low, best.ratio.median, best.ratio.high] if best else None,
        "verification": best.verification.as_json() if best else None,
    }
