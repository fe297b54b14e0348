"""Nests with several `sizes` clauses: a search for each class, then all kernels together as one candidate.

    search per class -> those that are faster there -> SeveralPlan -> compared and measured at every class

What is spliced is measured as it stands, with its dispatch.  A class whose kernel is not reliably faster than
the original gets none of its own, and neither do other sizes if the generic kernel is slow at usual ones.
Where a clause names the usual sizes, its kernel is the generic one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from mdh_core.diagnostics import refuse
from mdh_lift import improve as one_class
from mdh_lift import kernels, verified
from mdh_lift.c_value import NotAnInteger
from mdh_lift.classes import AnyPlan, Clause, SeveralPlan, classes_of, clauses_of, only_clause, several
from mdh_lift.findings import Finding
from mdh_lift.improve import (
    ClassResult,
    Improvement,
    Work,
    as_locked,
    chosen,
    entries_of,
    improvement,
    prepare,
    verdict_on,
)
from mdh_lift.pipeline import FileReport, NestReport, Options
from mdh_lift.run_search import Tell, run
from tuning.budget import Budget
from tuning.records import JOINT
from tuning.replay import replayed
from tuning.results import TuneResult, Winner


@dataclass(frozen=True, slots=True)
class Searched:
    """A class of sizes, what its search ended with, and what there is to tell; no clause: usual sizes."""

    work: Work
    result: TuneResult
    told: tuple[Finding, ...]
    clause: Clause | None

    def improvement(self, stage: str) -> Improvement:
        return improvement(self.work, self.result, stage, self.told)


def improve(report: FileReport, nest: NestReport, options: Options, stage: str, tell: Tell) -> Improvement:
    """As ``mdh_lift.improve.improve``, with a kernel for each of several `sizes` clauses."""
    assert nest.lifted is not None
    try:
        return _improve(report, nest, options, stage, tell)
    except NotAnInteger as error:
        raise kernels.not_known(nest.lifted, error) from None


def _improve(report: FileReport, nest: NestReport, options: Options, stage: str, tell: Tell) -> Improvement:
    assert nest.lifted is not None
    if len(clauses_of(nest.lifted)) < 2:
        return one_class.improve(report, nest, options, stage, tell)
    classes = [clause for _, clause in classes_of(nest.lifted)] or [None]  # no sizes fit: MDH804
    works = [(prepare(report, with_clause(nest, c), _options_for(c, options)), c) for c in classes]
    if options.locked and stage == "tune" and not options.replay:
        found = [as_locked(work) for work, _ in works]
        return replace(found[0], sizes="; ".join(i.sizes for i in found))
    made: list[Searched] = []
    for work, clause in works:
        result, told = chosen(work, stage if clause else _untuned(stage), tell)
        made.append(Searched(work, result, told, clause))
        if result.problem is not None:
            return made[0].improvement(stage)  # the original itself cannot be run
    won = [(m, w) for m in made if (w := m.result.winner) is not None]
    fast = [(m, w) for m, w in won if not verdict_on(m.work, w, stage)]
    if stage == "tune":  # nothing is spliced, so each class is told as it is
        return _tuned(made, won, fast, tell)
    kept = won if options.force else fast
    if not kept:
        return _told(made, made[0].improvement(stage))
    kept, whole, last = _together(kept, fast, stage, tell)
    found_whole = improvement(whole[0], last[0], stage)
    winners = [r.winner for r in last]
    slow = [f for work, w in zip(whole, winners, strict=True) if w for f in verdict_on(work, w, stage)]
    if None in winners or (slow and not options.force):
        others = [improvement(w, r, stage) for w, r in zip(whole[1:], last[1:], strict=True)]
        findings = (*found_whole.findings, *slow, *(f for i in others for f in i.findings))
        return replace(found_whole, part=None, apart=(), entries=(), findings=tuple(dict.fromkeys(findings)))
    measured = [(m, own, w) for (m, own), w in zip(kept, winners, strict=True) if w is not None]
    whole_found = _of_classes(found_whole, measured, stage)
    return _told(made, whole_found if stage != "verify" else replace(whole_found, speedup=None, classes=()))


def _options_for(clause: Clause | None, options: Options) -> Options:
    """Those that the class was searched with: there is no search for other sizes than those of a clause."""
    if clause is not None:
        return options
    tune = msgspec.structs.replace(options.config.tune, budget="0")
    return replace(options, config=msgspec.structs.replace(options.config, tune=tune))


Kept = list[tuple[Searched, Winner]]


def _tuned(made: Sequence[Searched], won: Kept, fast: Kept, tell: Tell) -> Improvement:
    """What `tune` ends with; what `splice` would put in place, forced and unforced, is run as one."""
    if not won:
        return _told(made, made[0].improvement("tune"))
    told = _of_classes(won[0][0].improvement("tune"), [(m, w, w) for m, w in won], "tune")
    faults: list[Finding] = []
    for group in () if won[0][0].work.options.runs_nothing else _groups(won, fast):
        _, whole, last = _together(group, [], "tune", tell)
        faults += [f for work, r in zip(whole, last, strict=True) if r.winner is None
                   for f in improvement(work, r, "tune").findings]  # fmt: skip
    return _told(made, replace(told, findings=(*told.findings, *faults)))


def _groups(kept: Kept, fast: Kept) -> list[Kept]:
    """All that are kept, and those of them that are fast where these are others."""
    return [kept, fast] if 0 < len(fast) < len(kept) else [kept]


def _together(
    kept: Kept, fast: Kept, stage: str, tell: Tell
) -> tuple[Kept, list[Work], list[TuneResult]]:
    """The kernels of the classes as one candidate, compared and timed at each class: which, with what result.

    Where nothing is run, what is recorded of all that are kept, or else of those that are fast.  Raises
    MDH522, MDH523, MDH525 where there is neither.
    """
    options = kept[0][0].work.options
    for group in _groups(kept, fast) if options.runs_nothing else [kept]:
        plan = several([(_plan(m.work), w.point, m.clause) for m, w in group])
        whole = [replace(m.work, plan=plan) for m, _ in group]
        if not options.runs_nothing:
            return group, whole, [run(work, plan.space, Budget(0), stage, tell, JOINT) for work in whole]
        records = [verified.together(work) for work in whole]
        found = [replayed(r, plan.candidate) for r in records if r is not None]
        if len(found) == len(records):
            return group, whole, [replace(r, search=None) for r in found]
    why = "its kernels for several classes of sizes were not compared as a whole"
    work = kept[0][0].work
    if options.replay:
        raise refuse("MDH523", f"`{work.lock_name}` cannot be replayed: {why}",
                     help="`mdh-lift tune` on the machine that measured does that")  # fmt: skip
    raise verified.unproved(work.report, work.nest, options, why)


def _of_classes(
    found: Improvement, measured: Sequence[tuple[Searched, Winner, Winner]], stage: str
) -> Improvement:
    """``measured``: what was chosen for each class, and with which ratio it is accepted."""
    results = tuple(
        ClassResult(m.work.size_class, dict(own.point), last.ratio) for m, own, last in measured
    )
    records = [(m.work, m.result.record) for m, *_ in measured]
    return replace(
        found,
        sizes="; ".join(r.sizes for r in results),
        configuration={f"at {r.sizes}": dict(r.configuration) for r in results},
        speedup=min((r.speedup for r in results), key=lambda r: r.low),
        entries=tuple(e for work, record in records for e in entries_of(work, record, stage)),
        classes=results,
    )


def with_clause(nest: NestReport, clause: Clause | None) -> NestReport:
    """The nest as if this were its only `sizes` clause; without one, for usual sizes."""
    assert nest.lifted is not None
    return replace(nest, lifted=only_clause(nest.lifted, clause))


def _untuned(stage: str) -> str:
    """The stage that takes the locked or the cost model's choice instead of a search."""
    return "splice" if stage in ("all", "tune") else stage


def _plan(work: Work) -> AnyPlan:
    assert not isinstance(work.plan, SeveralPlan)
    return work.plan


def _told(made: Sequence[Searched], found: Improvement) -> Improvement:
    """With what the searches told, and how many configurations they tried."""
    outcomes: dict[str, int] = {}
    findings = list(found.findings)
    for m in made:
        for kind, n in (m.result.reasons if len(m.result.evaluations) > 1 else {}).items():
            outcomes[kind] = outcomes.get(kind, 0) + n
        about = "usual sizes" if m.clause is None else m.work.size_class
        note = f"at {about}: no kernel is chosen there, the original runs"
        findings += [
            replace(f, diagnostic=replace(f.diagnostic, notes=(*f.diagnostic.notes, note)))
            if f.diagnostic.code == "MDH603" else f
            for f in m.improvement("tune").findings
        ]  # fmt: skip
    return replace(found, outcomes=outcomes, findings=tuple(dict.fromkeys(findings)))
