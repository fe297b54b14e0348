"""Work in a killable child: results in order, limits, and what becomes of the rest."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mdh_lift.within import Broken, TooLong, each_within


def _work(n: int) -> object:
    if n == 7:
        time.sleep(60)
    if n == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    if n == 9:
        raise ValueError("nine")
    return "x" * n if n > 1000 else n * n


def test_results_come_in_order() -> None:
    assert list(each_within(20, _work, [1, 2, 3, 300_000])) == [1, 4, 9, "x" * 300_000]
    assert list(each_within(20, _work, [])) == []
    assert list(each_within(0, _work, [5])) == [25]  # no limit, no child


def test_what_takes_too_long_is_killed_and_the_rest_goes_on() -> None:
    start = time.monotonic()
    found = list(each_within(0.5, _work, [1, 7, 2, 8, 3]))
    assert time.monotonic() - start < 20
    assert found[0] == 1 and isinstance(found[1], TooLong) and found[2] == 4
    assert isinstance(found[3], Broken) and found[3].reason == "SIGKILL" and found[4] == 9


def test_exceptions_are_raised_here() -> None:
    with pytest.raises(ValueError, match="nine"):
        list(each_within(20, _work, [1, 9]))


def test_no_child_is_left_behind() -> None:
    results = each_within(20, _work, [1, 7])
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
