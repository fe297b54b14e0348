"""What a search's parameters explain: on times of which the answer is known."""

from __future__ import annotations

import doctest
import random

import pytest

from tuning import importance as module
from tuning.importance import importance
from tuning.records import RACE, SEARCH, Step, canonical


def steps(number, seconds, seed=0):
    """Times as a function of two parameters, and one that is never used."""
    rng = random.Random(seed)
    for k in range(number):
        point = {"tile": rng.choice([1, 2, 4, 8]), "lanes": rng.choice([4, 8]), "order": rng.choice("abcd"), "fixed": 1}
        point["key"] = k
        yield Step(k, float(k), SEARCH, canonical(point), "ok", times=(seconds(point, rng),) * 3)


def shares(found):
    return {x.parameter: x.share for x in found.shares}


def test_examples():
    assert doctest.testmod(module).failed == 0


def test_one_parameter_explains_all():
    found = importance(steps(60, lambda p, rng: 1e-3 * p["tile"]))
    assert found.evaluations == 60 and found.shares[0].parameter == "tile"
    assert shares(found)["tile"] == pytest.approx(1) and found.shares[0].values == 4
    assert "fixed" not in shares(found)


def test_noise_explains_nothing_however_many_values():
    """Without degrees of freedom 4 values of 40 would seem to explain 3/39 on average, 20 values a half."""
    mean = [0.0, 0.0]
    for seed in range(60):
        rng = random.Random(seed)
        values = [rng.lognormvariate(0, 1) for _ in range(40)]
        mean[0] += module.explained([k % 4 for k in range(40)], values) / 60
        mean[1] += module.explained([k % 20 for k in range(40)], values) / 60
    assert mean[0] < 0.06 and mean[1] < 0.2


def test_shares_are_those_of_the_spread():
    """log(time) = 2 log2(tile) + 1 log2(lanes) + noise: variances 4 * 5/4, 1/4, 0.04."""
    found = shares(importance(steps(4000, lambda p, r: 4.0 ** (p["tile"].bit_length()) * p["lanes"] * 2 ** r.gauss(0, 0.2))))
    whole = 4 * 1.25 + 0.25 + 0.04
    assert found["tile"] == pytest.approx(5 / whole, abs=0.02)
    assert found["lanes"] == pytest.approx(0.25 / whole, abs=0.02) and found["order"] < 0.01


def test_too_few_times_say_nothing():
    few = importance(steps(9, lambda p, rng: 1e-3 * p["tile"]))
    assert few.evaluations == 9 and set(shares(few).values()) == {None}
    some = importance(steps(30, lambda p, rng: 1e-3 * p["tile"]))
    assert shares(some)["key"] is None and shares(some)["tile"] == pytest.approx(1)  # a value for each time
    assert [x.share is None for x in some.shares] == sorted(x.share is None for x in some.shares)
    assert importance(()).shares == ()


def test_what_counts_as_a_time():
    """Failures and races do not; of a configuration that ran twice the last time does."""
    own = list(steps(40, lambda p, rng: 1e-3 * p["tile"]))
    failed = [Step(99, 1.0, SEARCH, canonical({"tile": 1, "key": -1}), "compile_failed")]
    raced = [Step(99, 1.0, RACE, own[0].configuration, "ok", times=(9.0,) * 3)]
    before = [Step(0, 0.0, SEARCH, own[0].configuration, "ok", times=(7.0,) * 3)]
    assert importance([*before, *own, *failed, *raced]) == importance(own)


def test_equal_times_have_no_spread():
    assert set(shares(importance(steps(40, lambda p, rng: 1e-3))).values()) <= {0.0, None}
