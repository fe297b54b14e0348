"""Random affine nests: what is lifted means the same, and nothing raises.

``python -m campaigns.nests --count 100000`` is the long form.  Failures that it found, shrunk, are in
``tests/found`` and are checked for ever.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns import nests
from campaigns.nest_emit import job, run_jobs
from campaigns.nest_maker import random_nest
from campaigns.nest_shrink import shrunk
from campaigns.nest_tree import For, Op, c_text, exprs_of, walk, walk_expr
from campaigns.nests import Settings, campaign, check_c, check_python, check_text
from lifter.lift import LiftedNest
from mdh_core.ir import MdhProgram

FOUND = sorted((Path(__file__).parent / "found").glob("*.c"))


@pytest.mark.parametrize("part", range(20))
def test_random_nests_keep_their_meaning(part):
    """1,000 nests in all."""
    tally, failures = campaign(1 + 50 * part, 50, jobs=1)
    assert not failures, "\n".join(f.text for f in failures)
    assert tally.statuses["lifted"] >= 10 and tally.uncompared <= 1 and tally.dropped <= 3, tally.text()


@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.stem)
def test_found_before(path):
    for outcome in check_c(path.read_text(encoding="utf-8")):
        assert not outcome.failure, outcome
        assert outcome.status == "refused" or outcome.runs >= 3, outcome


def test_nests_are_the_same_everywhere():
    assert [c_text(random_nest(s)) for s in range(30)] == [c_text(random_nest(s)) for s in range(30)]


def test_nests_vary():
    features: set[str] = set()
    for seed in range(400):
        features |= random_nest(seed).features
    assert {"triangle", "strided", "down", "time", "several", "arg", "scan", "recurrence", "gather"} <= features
    assert {"op +", "op *", "op min", "op max", "op &", "op |", "op ^", "op &&", "op ||"} <= features
    depths = {depth(random_nest(seed).body) for seed in range(400)}
    assert depths >= {1, 2, 3, 4, 5, 6}


def depth(body):
    return max((depth(s.body) + 1 if isinstance(s, For) else 0 for s in body), default=0)


def test_shrinking_keeps_what_fails():
    """The "failure": a subtraction under some loop."""

    def fails(nest):
        signs = (
            e.sign for s in walk(nest.body) for x in exprs_of(s) for e in walk_expr(x) if isinstance(e, Op)
        )
        return "-" in signs

    seeds = [s for s in range(60) if fails(random_nest(s))]
    assert len(seeds) > 10
    for seed in seeds[:10]:
        small = shrunk(random_nest(seed), fails)
        assert fails(small) and len(list(walk(small.body))) <= 2, c_text(small)


def test_wrong_steps_are_noticed(monkeypatch):
    """A lifter that forgets the initial value is caught and the nest is made small."""
    right = nests.run_steps

    def without_initial(step):
        if not isinstance(step, MdhProgram):
            return step
        return replace(step, out=replace(step.out, initial=(None,) * len(step.out.initial)))

    def wrong(steps, *arguments, **options):
        right(tuple(map(without_initial, steps)), *arguments, **options)

    monkeypatch.setattr(nests, "run_steps", wrong)
    _, failures = campaign(1, 30, jobs=1)
    assert failures
    for f in failures:
        statements = list(walk(f.nest.body))
        assert sum(isinstance(s, For) for s in statements) <= 2 and len(statements) <= 5, f.text


# --------------------------------------------------------------------------- emitted kernels


def test_emitted_kernels_compute_the_same():
    tally, failures = campaign(5001, 50, jobs=1, settings=Settings(emit=True))
    assert not failures, "\n".join(f.text for f in failures)
    assert tally.kernels >= 100 and tally.declined >= 2, tally.text()


def spliced(seeds):
    jobs = []
    for seed in seeds:
        nest = random_nest(seed)
        lifted = check_text(c_text(nest))
        if isinstance(lifted, LiftedNest):
            jobs.append(job(seed, nest, lifted))
    return jobs


def test_a_missing_overlap_test_is_noticed():
    """Kernels that never decline compute something else where arrays share memory."""
    shared = [j for j in spliced(range(60)) if any(r.shared for r in j.runs)]
    assert len(shared) >= 5
    careless = [replace(j, text=re.sub(r"return 0; /\* \w+ and \w+ overlap \*/", ";", j.text)) for j in shared]
    assert len(run_jobs(careless).failures) >= 2 and not run_jobs(shared).failures


def test_a_write_outside_is_noticed():
    nest = next(n for n in map(random_nest, range(200)) if "strided" in n.features and len(n.arrays) < 3)
    (good,) = spliced([next(s for s in range(200) if random_nest(s) == nest)])
    name = nest.arrays[0].name
    bad = replace(good, text=good.text.replace("mdh_ran = 1;", f"mdh_ran = 1; ((char *){name})[-1] = 0;"))
    results = run_jobs([bad])
    assert results.failures[good.seed][0].startswith("emit: address"), results


# --------------------------------------------------------------------------- as Python


def test_nests_as_python():
    """The same nests from Python's text, against what Python and NumPy make of it."""
    outcomes = [(seed, check_python(random_nest(seed), seed, 2)) for seed in range(7001, 7081)]
    assert not [(seed, o) for seed, o in outcomes if o.failure]
    assert sum(o.runs > 0 for _, o in outcomes) >= 40


@pytest.mark.parametrize("seed", [26548, 58097])
def test_what_c_leaves_undefined_is_no_failure(seed):
    """An unsigned `i < n - 2` where n is 1; a float that no int holds: those runs are dropped, others count."""
    outcome = nests.check_all(random_nest(seed), seed, 3, False)
    assert not outcome.failure and outcome.runs >= 1 and outcome.dropped >= 1
