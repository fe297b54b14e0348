"""The original against a candidate, on many sizes and inputs.

What is demanded depends on what the original did, observed through the processor's *inexact* flag:

* the original rounded nothing (small integers, minima, copies, integer arithmetic): equal values, whatever
  the order of evaluation (``-0`` equals ``0``; NaN equals NaN);
* it rounded: ``|got - expected| <= 4 eps (L + 8) scale``, with L the longest chain of operations that may
  add their errors and ``scale`` the largest of |expected|, |the nest on absolute values| and the magnitudes
  in the array before and after the nest.  For sums of products the second term is the sum of all |terms|,
  so the bound holds for every order of summation (Higham), with room for contraction of the scalar
  function.  The last one is for values that cancel, as what an orthogonalisation leaves;
* where errors grow on their way (divisions, recurrences) this says little.  So the original also runs with
  results rounded upward and downward: eight times the distance that a value moves is allowed, and the bound
  above grows as far as the original itself needs it.  Where values of an array move by more than 1e-4 of
  their scale (``float``: 1e-2), the input does not determine them: what moves more than the bound is then
  compared by its order of magnitude, and not at all where it is finite in one rounding mode only;
* ``bitwise``: equal bits (``fp(exact)``), NaN's payload aside.

The last comparison of a candidate (``verify_thoroughly``) has a second original, compiled without
optimisation.  Where the two differ, either value is right, and their distance counts as one that a value
moves.  It also runs

* arrays at addresses that are multiples of an element's size only;
* special values among the others (``Specials`` says which): NaN must stay NaN, an infinity that infinity, and
  where the nest fixes how each result is computed, zeros keep their sign.  Where values are combined in any
  order this is demanded if the original rounded nothing; if it did, only finite values are compared;
* data that are denormal throughout; arrays larger than the caches.

Data: ``exact`` draws small integers, so sums are exact and an index error shows sharply; ``real`` draws from
[-1, 1); the ``product`` variants stay near one in magnitude, for nests that multiply up; ``positive`` has no
zero, for nests that divide integers; ``dominant`` is well conditioned, for nests that divide or take roots of
what they computed: matrices with a dominant diagonal, positive vectors with a sum below one.  Values that are
used as indices stay inside the array that they index.  Arrays lie between inaccessible pages, alternately
touching the one behind and the one before; what is left of a page is checked for stray writes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tuning.harness import ArrayArg, Sizes, Subject
from tuning.processes import TIMED_OUT
from tuning.runner import (
    CRASHED,
    HARNESS_FAILED,
    NO_MEMORY,
    OK,
    ORIGINAL_FAILED,
    WRONG_RESULT,
    Outcome,
    Workbench,
    case_text,
)

DATA = ("exact", "real", "exact_product", "real_product", "positive", "dominant", "denormal")
KINDS = {
    "exact": "small integers",
    "exact_product": "small integers",
    "real": "real numbers",
    "real_product": "real numbers",
    "positive": "positive integers",
    "dominant": "dominant real numbers",
    "denormal": "denormal numbers",
}
SPECIAL_VALUES = ("NaN", "infinities", "zeros of both signs", "denormal numbers", "extreme integers")
_STYLES = {
    "sum": ("exact", "real"),
    "product": ("exact_product", "real_product"),
    "positive": ("positive", "positive"),
    "dominant": ("dominant", "dominant"),
}
_ENOUGH_SECONDS = 12.0  # of one set of comparisons; a nest of fixed, large sizes allows no more than a few
_PART_THAT_FAILS = 3  # up to a third of the cases may have sizes at which the original fails
EXACT_DATA = {"sum": "exact", "product": "exact_product", "positive": "positive", "dominant": "dominant"}


@dataclass(frozen=True, slots=True)
class Overlap:
    """Array ``second`` starts ``shift`` elements into array ``first``."""

    first: str
    second: str
    shift: int


@dataclass(frozen=True, slots=True)
class Specials:
    """Special values that a nest's result is determined for.

    values      of ``SPECIAL_VALUES``; ``extremes``: the largest and smallest integers
    denormal    it may be given data that are denormal throughout
    zero_signs  it computes each result from given values in a given order: -0 is no 0
    any_order   it combines floating-point values in any order
    reasons     why some are left out
    """

    values: tuple[str, ...] = ()
    denormal: bool = False
    zero_signs: bool = False
    any_order: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison.  ``sizes`` gives all integer parameters, and may give floating-point ones."""

    sizes: Mapping[str, int | float]
    data: str = "exact"
    threads: int = 1
    seed: int = 1
    bitwise: bool = False
    at_start: bool = False
    overlap: Overlap | None = None
    offset: int = 0
    specials: Specials | None = None
    every: int = 1
    large: bool = False

    @property
    def kind(self) -> str:
        """What it is about, for reports."""
        if self.specials is not None:
            return "special values"
        if self.large:
            return "large arrays"
        if self.overlap is not None:
            return "overlapping arrays"
        return "offset arrays" if self.offset else KINDS[self.data]

    def describe(self) -> str:
        sizes = ", ".join(f"{n}={v}" for n, v in self.sizes.items()) or "fixed sizes"
        where = (
            f", {self.overlap.second} = {self.overlap.first} + {self.overlap.shift}" if self.overlap else ""
        )
        if self.specials is not None:
            where += f", with {', '.join(self.specials.values)}"
        if self.offset:
            where += ", arrays aligned to their elements only"
        return f"{sizes}; {self.data} data, seed {self.seed}, {self.threads} thread(s){where}"

    def settings(self) -> dict[str, object]:
        shared: dict[str, object] = {
            "seed": self.seed,
            "data": DATA.index(self.data),
            "threads": self.threads,
            "bitwise": int(self.bitwise),
            "at_start": int(self.at_start),
            "offset": self.offset,
        }
        if self.specials is not None:
            shared["special"] = sum(1 << SPECIAL_VALUES.index(v) for v in self.specials.values)
            shared["every"] = self.every
            shared["zero_signs"] = int(self.specials.zero_signs)
            shared["loose"] = int(self.specials.any_order)
        if self.overlap:
            first, second, shift = self.overlap.first, self.overlap.second, self.overlap.shift
            shared |= {"alias": first, "aliased": second, "shift": shift}
        return shared


@dataclass(frozen=True, slots=True)
class VerifySummary:
    """``outcome`` is ok, or the first thing that went wrong; the rest counts what was compared.

    ``handled``: cases in which the kernel itself ran; ``declined``: its guard let the original run.
    ``exact``: cases in which equality was demanded.  ``skipped``: sizes that make no sense, or too large.
    ``undetermined``: values that differ and were compared loosely, as the original's depend on how it rounds.
    ``differs``: values that the original itself computes differently without optimisation; either is right.
    ``error``, ``bound``: the largest difference and what was allowed there, in units of the last place of the
    scale (see the module's text); ``max_ulp`` is in units of the expected value's last place.
    ``plain``: the original without optimisation was compared with, too.
    ``notes``: what was not tried, and why.
    """

    outcome: Outcome
    cases: int = 0
    handled: int = 0
    declined: int = 0
    exact: int = 0
    skipped: int = 0
    undetermined: int = 0
    max_ulp: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    sizes: tuple[str, ...] = field(default=())
    differs: int = 0
    error: float = 0.0
    bound: float = 0.0
    kinds: Mapping[str, int] = field(default_factory=dict)
    plain: bool = False
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Everything compared equal, and the kernel ran at least once."""
        return self.outcome.ok and self.handled > 0

    def as_json(self) -> dict[str, Any]:
        names = ("cases", "handled", "declined", "exact", "skipped", "undetermined", "differs")
        counts = {n: getattr(self, n) for n in names}
        return {
            **counts,
            "max_ulp": self.max_ulp,
            "error_ulp": self.error,
            "bound_ulp": self.bound,
            "sizes": list(self.sizes),
            "data": dict(self.kinds),
            "against_O0": self.plain,
            "notes": list(self.notes),
            "outcome": self.outcome.kind,
        }

    def joined(self, other: VerifySummary) -> VerifySummary:
        """Both together; the outcome is the first that is not ok."""
        added = ("cases", "handled", "declined", "exact", "skipped", "undetermined", "differs")
        worst = max((self, other), key=lambda s: s.error)
        return replace(
            self,
            outcome=other.outcome if self.outcome.ok else self.outcome,
            **{n: getattr(self, n) + getattr(other, n) for n in added},
            **{n: max(getattr(self, n), getattr(other, n)) for n in ("max_ulp", "max_abs", "max_rel")},
            sizes=tuple(dict.fromkeys((*self.sizes, *other.sizes))),
            error=worst.error,
            bound=worst.bound,
            kinds=dict(Counter(self.kinds) + Counter(other.kinds)),
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
        )


# --------------------------------------------------------------------------- which cases


def size_ladder(
    ranges: Mapping[str, tuple[int, int]],
    tiles: Iterable[int] = (),
    *,
    cost: Callable[[Sizes], float] | None = None,
    limit: float = 2e6,
    at_most: int = 24,
) -> list[dict[str, int]]:
    """Sizes worth comparing: 0, 1, primes, each tile - 1, tile, tile + 1; equal and mixed over parameters.

    ``ranges``: inclusive bounds per parameter (values outside are clipped).  ``cost`` estimates the work of
    one run (default: the product of all sizes); what exceeds ``limit`` is left out.  No parameters: one
    empty dict.
    """
    if not ranges:
        return [{}]
    names = sorted(ranges)
    around = [v for t in sorted(set(tiles)) if t > 1 for v in (t - 1, t, t + 1)]
    values = list(dict.fromkeys([7, 0, 1, 2, 3, *around, 13, 17, 31, 61, 127]))
    primes = [5, 11, 7, 13, 3, 17, 2, 19]
    candidates: list[dict[str, int]] = [{n: primes[k % 8] for k, n in enumerate(names)}]
    candidates += [dict.fromkeys(names, v) for v in values]
    if len(names) > 1:
        for name, small in itertools.product(names, (0, 1)):
            candidates.append({n: small if n == name else primes[k % 8] for k, n in enumerate(names)})
        for name, value in itertools.product(names, [v for v in (*around, 37, 101) if v > 3]):
            candidates.append({n: value if n == name else primes[k % 8] for k, n in enumerate(names)})
    return _affordable(candidates, ranges, cost or _product, limit)[:at_most]


def _product(sizes: Sizes) -> float:
    result = 1.0
    for value in sizes.values():
        result *= max(1, value)
    return result


def _affordable(
    candidates: list[dict[str, int]],
    ranges: Mapping[str, tuple[int, int]],
    cost: Callable[[Sizes], float],
    limit: float,
) -> list[dict[str, int]]:
    kept: dict[tuple[int, ...], dict[str, int]] = {}
    for sizes in candidates:
        clipped = {n: min(max(v, ranges[n][0]), ranges[n][1]) for n, v in sizes.items()}
        if cost(clipped) <= limit:
            kept.setdefault(tuple(clipped.values()), clipped)
    return list(kept.values())


def overlapping_pairs(subject: Subject) -> list[tuple[str, str]]:
    """Arrays of one type that may overlap, at least one of them written, and that nobody promised not to."""
    free = [a for a in subject.arrays if not a.no_alias]
    return [
        (a.name, b.name)
        for a, b in itertools.permutations(free, 2)
        if a.type == b.type and (a.written or b.written) and not _both_written_twice(a, b)
        and not any({a.name, b.name} <= set(group) for group in subject.noalias)
    ]


def _both_written_twice(a: ArrayArg, b: ArrayArg) -> bool:
    return a.written and b.written and a.name > b.name  # each unordered pair of outputs once


def cases_for(
    subject: Subject,
    sizes_list: Sequence[Mapping[str, int | float]],
    *,
    style: str = "sum",
    threads: Sequence[int] = (1, 2, 4),
    seed: int = 1,
    bitwise: bool = False,
    overlap: bool = True,
) -> list[Case]:
    """Exact and real data on every size, thread counts and placements in turn, then overlapping arrays.

    ``style``: ``sum``, ``product`` (the nest multiplies up), ``positive`` or ``dominant`` (it divides).
    """
    cases: list[Case] = []
    for k, sizes in enumerate(sizes_list):
        for d, data in enumerate(_STYLES[style]):
            count = threads[(k + d) % len(threads)]
            cases.append(Case(sizes, data, count, seed + k, bitwise, at_start=(k + d) % 3 == 1))
    if overlap and sizes_list:
        chosen = [s for s in sizes_list if all(v > 3 for v in s.values())][-2:] or list(sizes_list[:1])
        for sizes, (first, second) in itertools.product(chosen, overlapping_pairs(subject)):
            for shift in (0, 1, 3):
                where = Overlap(first, second, shift)
                cases.append(Case(sizes, _STYLES[style][0], threads[-1], seed, bitwise, overlap=where))
    return cases


# --------------------------------------------------------------------------- running them


def verify(
    bench: Workbench,
    subject: Subject,
    program: str,
    cases: Sequence[Case],
    *,
    seconds: float = 0.0,
    plain: str = "",
    enough: float = 0.0,
) -> VerifySummary:
    """Run all cases in one process, stop at the first that fails, and say which and how.

    ``plain``: a library with the original compiled without optimisation (``Workbench.build_plain``).
    ``enough``: after so many seconds no further case begins (0: a part of ``seconds``); what is left out is
    noted.  Where the original itself fails on a division, the cases are repeated with data that has no zero.
    Sizes at which it fails in any case, as ``x[n - 1]`` does at ``n = 0``, mean nothing: they are left out
    and noted, up to a part of all cases.
    """
    wall = seconds or bench.limits.run_seconds
    enough = enough or 0.6 * wall
    run = partial(_verify_once, bench, subject, program, seconds=wall, plain=plain, enough=enough)
    summary = run(cases)
    if summary.outcome.kind == ORIGINAL_FAILED and "SIGFPE" in summary.outcome.reason:
        cases = [replace(c, data="positive") for c in cases]
        summary = run(cases)
    before: VerifySummary | None = None
    left, failing = list(cases), 0
    while True:
        number = summary.outcome.data.get("case", -1)
        so_far = summary if before is None else before.joined(summary)
        if summary.outcome.kind != ORIGINAL_FAILED or not 0 <= number < len(left):
            return so_far
        case = left[number]
        alone = run([case])
        slow = summary.outcome.data.get("how") == TIMED_OUT
        if slow and alone.outcome.data.get("seconds", 0.0) >= _seconds_of_last_phase(summary.outcome) / 2:
            if so_far.cases == 0:
                return so_far
            note = f"{case.describe()} and what would have followed: the original is slow"
            return replace(so_far, outcome=Outcome(OK), notes=(*so_far.notes, note))
        if alone.outcome.kind != ORIGINAL_FAILED:
            reason = f"the original failed after the candidate had run: {summary.outcome.reason}"
            return replace(so_far, outcome=Outcome(CRASHED, reason, summary.outcome.data))
        rest = [c for c in left[number + 1 :] if c.sizes != case.sizes]
        failing += len(left) - number - len(rest)
        rest = [c for c in rest if case_text(0, "verify", subject, c.sizes, c.settings()) is not None]
        if failing > len(cases) / _PART_THAT_FAILS or not (rest or so_far.cases):
            return so_far
        note = f"{_size_text(case.sizes)}: {summary.outcome.reason.split(';')[0]}"
        before = replace(so_far, outcome=Outcome(OK), notes=(*so_far.notes, note))
        if not rest:
            return before
        left, summary = rest, run(rest)


def _seconds_of_last_phase(outcome: Outcome) -> float:
    """How long what was stopped had run."""
    times = [line["at"] for line in outcome.data.get("lines", ()) if "phase" in line]
    return float(outcome.data.get("seconds", 0.0)) - (times[-1] - times[0]) if times else 0.0


def _verify_once(
    bench: Workbench,
    subject: Subject,
    program: str,
    cases: Sequence[Case],
    *,
    seconds: float,
    plain: str,
    enough: float,
) -> VerifySummary:
    shared = {"plain": plain} if plain else {}
    texts = [case_text(k, "verify", subject, c.sizes, c.settings() | shared) for k, c in enumerate(cases)]
    usable = [text for text in texts if text is not None]
    if not usable:
        return VerifySummary(Outcome(HARNESS_FAILED, "no sizes to verify with"), skipped=len(cases))
    threads = max(c.threads for c in cases)
    ended = bench.run(program, usable, seconds=seconds, threads=threads, timed=False, enough=enough)
    results = [line for line in ended.data.get("lines", ()) if "verify" in line]
    left = next((line["left_out"] for line in ended.data.get("lines", ()) if "left_out" in line), 0)
    spent = ended.data.get("seconds", 0.0)
    outcome = _first_failure(subject, cases, results, ended)
    results = [line for line in results if not line["original_damaged"]]
    return VerifySummary(
        outcome if not outcome.ok else replace(outcome, data={"seconds": spent}),
        cases=len(results),
        handled=sum(line["handled"] for line in results),
        declined=sum(not line["handled"] for line in results),
        exact=sum(not line["inexact"] for line in results),
        skipped=len(texts) - len(usable),
        undetermined=sum(line["undetermined"] for line in results),
        max_ulp=max((line["max_ulp"] for line in results), default=0.0),
        max_abs=max((line["max_abs"] for line in results), default=0.0),
        max_rel=max((line["max_rel"] for line in results), default=0.0),
        sizes=_distinct_sizes(cases, results),
        differs=sum(line["differs"] for line in results),
        error=max((line["error"] for line in results), default=0.0),
        bound=max(((line["error"], line["bound"]) for line in results), default=(0.0, 0.0))[1],
        kinds=_kinds(cases[line["verify"]] for line in results),
        plain=bool(plain),
        notes=(_left_out(cases[-left:], spent),) if left else (),
    )


def _kinds(cases: Iterable[Case]) -> dict[str, int]:
    return dict(Counter(case.kind for case in cases))


def _left_out(cases: Sequence[Case], spent: float) -> str:
    kinds = ", ".join(f"{kind} ({n})" for kind, n in _kinds(cases).items())
    return f"{kinds}: the comparisons before took {spent:.0f} s"


def _distinct_sizes(cases: Sequence[Case], results: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_size_text(cases[line["verify"]].sizes) for line in results))


def _size_text(sizes: Mapping[str, int | float]) -> str:
    return ",".join(f"{n}={v}" for n, v in sorted(sizes.items()))


@dataclass(frozen=True, slots=True)
class Thorough:
    """What the last comparison does beyond the usual cases.

    sizes      to try with arrays that are only aligned to their elements, and with special values
    specials   that the nest is determined for
    large      sizes whose arrays exceed the caches; None: there are none in reasonable time
    seconds    that one run of the original takes at the size tuned for, if known: fixed sizes need patience
    """

    sizes: Sequence[Mapping[str, int | float]]
    specials: Specials = field(default=Specials())
    large: Mapping[str, int | float] | None = None
    style: str = "sum"
    bitwise: bool = False
    seed: int = 1
    large_seconds: float = 8.0
    seconds: float = 0.0


def verify_thoroughly(
    bench: Workbench, subject: Subject, program: str, cases: Sequence[Case], more: Thorough
) -> VerifySummary:
    """The usual cases; then offset arrays, special values and large arrays.  All against both originals:
    compiled as the user does, and without optimisation."""
    built = bench.build_plain(subject)
    plain = built.data["library"] if built.ok else ""
    wall = max(bench.limits.run_seconds, 60 * more.seconds)
    enough = max(_ENOUGH_SECONDS, 16 * more.seconds)
    check = partial(verify, bench, subject, program, seconds=wall, enough=enough)
    first = [*cases, *_offset_cases(more, bench.threads)]
    usual = check(first, plain=plain)
    if plain and usual.outcome.kind == HARNESS_FAILED and usual.cases == 0:
        built, plain = usual.outcome, ""
        usual = check(first)
    notes = () if plain else (f"not compared with the original at -O0: {built.reason}",)
    summary = replace(usual, notes=(*usual.notes, *notes))
    if not summary.outcome.ok:
        return summary
    special = _special_cases(more, bench.threads)
    summary = replace(summary, notes=(*summary.notes, *more.specials.reasons))
    if special:
        found = check(special, plain=plain)
        if found.outcome.kind == ORIGINAL_FAILED:
            reason = f"no special values: {found.outcome.reason}"
            found = replace(found, outcome=Outcome(OK), notes=(reason,))
        summary = summary.joined(found)
    if more.large is None or not summary.outcome.ok:
        return summary
    case = Case(more.large, EXACT_DATA[more.style], bench.threads, more.seed, more.bitwise, large=True)
    found = verify(bench, subject, program, [case], seconds=more.large_seconds, plain=plain)
    kind = found.outcome.kind
    if kind in (NO_MEMORY, ORIGINAL_FAILED) or (kind == TIMED_OUT and not _is_endless(found.outcome)):
        reason = f"large arrays not compared: {found.outcome.reason}"
        found = replace(found, outcome=Outcome(OK), notes=(reason,))
    return summary.joined(found)


def _is_endless(outcome: Outcome) -> bool:
    """Did the candidate not end where the originals were quick?"""
    began = [line["at"] for line in outcome.data.get("lines", ()) if line.get("phase") == "candidate"]
    first = [line["at"] for line in outcome.data.get("lines", ()) if "phase" in line]
    return bool(began) and began[-1] - first[0] < outcome.data.get("seconds", 0.0) / 20


def _odd_sizes(more: Thorough, at_most: int) -> list[Mapping[str, int | float]]:
    """Some of the sizes, none of them 0 or 1 where possible."""
    chosen = [s for s in more.sizes if all(v > 1 for v in s.values())] or list(more.sizes)
    step = max(1, len(chosen) // at_most)
    return chosen[::step][:at_most]


def _offset_cases(more: Thorough, threads: int) -> list[Case]:
    kinds = _STYLES[more.style]
    return [
        Case(s, kinds[k % 2], threads, more.seed + k, more.bitwise, offset=1 + k)
        for k, s in enumerate(_odd_sizes(more, 4))
    ]


def _special_cases(more: Thorough, threads: int) -> list[Case]:
    """Rare ones, so that few results are NaN, and frequent ones."""
    cases: list[Case] = []
    exact, real = _STYLES[more.style]
    for k, sizes in enumerate(_odd_sizes(more, 4)):
        case = Case(sizes, exact, (1, threads)[k % 2], more.seed + k, more.bitwise)
        if more.specials.values:
            rare = max(5.0, min(1e6, _product({n: int(v) for n, v in sizes.items()}) ** 0.75))
            for every in (2, int(rare)):
                cases.append(replace(case, specials=more.specials, every=every))
            for value in more.specials.values if more.specials.any_order else ():
                alone = replace(more.specials, values=(value,))  # one may hide another: inf - inf is NaN
                cases.append(replace(case, specials=alone, every=5))
            if not more.specials.any_order:
                cases.append(replace(case, data=real, specials=more.specials, every=7))
        if more.specials.denormal:
            cases.append(replace(case, data="denormal"))
    return cases


def _first_failure(
    subject: Subject, cases: Sequence[Case], results: Sequence[Mapping[str, Any]], ended: Outcome
) -> Outcome:
    for line in results:
        case = cases[line["verify"]]
        if line["original_damaged"]:
            array = line["original_damaged"]
            reason = f"the original writes outside of {array}; {case.describe()}"
            return Outcome(ORIGINAL_FAILED, reason, {"array": array, "case": line["verify"]})
        if line["damaged"]:
            reason = f"write outside of {line['damaged']}; {case.describe()}"
            return Outcome(WRONG_RESULT, reason, {"array": line["damaged"]})
        if line["mismatches"]:
            return _wrong(case, line)
    if ended.ok:
        return Outcome(OK)
    number = ended.data.get("case", -1)
    if ended.kind in (CRASHED, ORIGINAL_FAILED) and 0 <= number < len(cases):
        return replace(ended, reason=f"{ended.reason}; {cases[number].describe()}")
    return ended


def _wrong(case: Case, line: Mapping[str, Any]) -> Outcome:
    place = f"{line['array']}[{line['index']}]" + (f".{line['field']}" if line["field"] else "")
    values = f"{place} is {line['got']}, expected {line['expected']} ({line['mismatches']} wrong)"
    reason = f"{values}; {case.describe()}"
    details = {n: line[n] for n in ("array", "field", "index", "got", "expected", "mismatches")}
    sizes = {"sizes": dict(case.sizes), "seed": case.seed, "data": case.data, "threads": case.threads}
    return Outcome(WRONG_RESULT, reason, {**details, **sizes, "tolerance": line.get("tolerance", 0)})
