"""Random affine nests: what is lifted means the same, and nothing raises.

``python -m campaigns.nests --count 100000`` is the long form.  Failures that it found, shrunk, are in
``tests/found`` and are checked for ever.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from campaigns import nests
from campaigns.nest_maker import random_nest
from campaigns.nest_shrink import shrunk
from campaigns.nest_tree import For, Op, c_text, exprs_of, walk, walk_expr
from campaigns.nests import campaign, check_c
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
    features = set()
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
