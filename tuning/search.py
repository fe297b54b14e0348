"""Which configurations to try: the cost model's best first, then a strategy of Kernel Tuner.

The only module that imports ``kernel_tuner``, and only when a search starts.  Strategies see a ``Runner``
whose ``run(batch)`` evaluates configurations; ours hands batches to ``evaluate_batch``, remembers every
answer (a configuration is never evaluated twice), counts the budget, and maps failures to Kernel Tuner's
error values, never to NaN.  These are seams, not public API; ``tests/test_tuning.py`` pins them (1.5).
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lowering.point import Point, Value
from lowering.space import Space
from mdh_core.diagnostics import Diagnostic, Refusal
from tuning.budget import DEFAULT_STRATEGY, STRATEGIES, Budget
from tuning.records import IN_TURN
from tuning.runner import COMPILE_FAILED, NOT_GENERATED, UNKNOWN, Outcome
from tuning.space import Estimate, best_estimated, working_set

CUT_OFF_FACTOR = 3.0
MODEL = "model"  # strategy: none, the cost model chooses
_FOR_THE_RACE = 0.15  # of a budget in seconds
_TAKES_START = ("genetic_algorithm", "greedy_ils", "simulated_annealing")
FAVOURITES = 16  # of the cost model that a search begins with, at most
_STALL = 400  # runs in a row without a configuration that is new
_RACE_SECONDS = 10.0  # where the budget is none of seconds
_ROUND = 50  # evaluations before a strategy starts again around the best found so far


_USUAL = Budget(evaluations=200)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One configuration: how it went, and its time in seconds (infinite unless the outcome is ok).

    ``text``: hash of its code where that is known; other configurations may have the same.  ``times``: of
    single runs, of which ``seconds`` was made.
    """

    point: Point
    outcome: Outcome
    seconds: float = math.inf
    reused: bool = False  # from the store: costs no budget
    text: str = ""
    times: tuple[float, ...] = ()

    @property
    def ok(self) -> bool:
        return self.outcome.ok and math.isfinite(self.seconds)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """``leaders``: the best evaluations, best first, timed again in turn if that was asked for."""

    evaluations: tuple[Evaluation, ...]
    leaders: tuple[Evaluation, ...]
    strategy: str
    seed: int
    stopped: str

    @property
    def best(self) -> Evaluation | None:
        return self.leaders[0] if self.leaders else None

    @property
    def reasons(self) -> dict[str, int]:
        return dict(sorted(Counter(e.outcome.kind for e in self.evaluations).items()))


# points, and the seconds beyond which an evaluation may be cut off (infinite: never)
EvaluateBatch = Callable[[Sequence[Point], float], Sequence[Evaluation]]
# leaders, the number of the one that stays unless another is surely faster, seconds -> seconds of each
Race = Callable[[Sequence[Evaluation], int, float], Sequence[float]]


class _Finished(Exception):  # noqa: N818 - not an error
    """The budget is spent."""


@dataclass
class _Ledger:
    """What has been evaluated, and what may still be."""

    space: Space
    evaluate_batch: EvaluateBatch
    budget: Budget
    started: float = field(default_factory=time.monotonic)
    known: dict[tuple[Value, ...], Evaluation] = field(default_factory=dict)
    spent: int = 0
    stalled: int = 0
    stopped: str = "space exhausted"
    error: Exception | None = None  # ours, on its way through a strategy

    @property
    def best_seconds(self) -> float:
        return min((e.seconds for e in self.known.values() if e.ok), default=math.inf)

    def remaining(self) -> int:
        if self.budget.seconds is not None and time.monotonic() - self.started >= self.budget.seconds:
            return 0
        return 1 << 30 if self.budget.evaluations is None else max(0, self.budget.evaluations - self.spent)

    def evaluate(self, points: Sequence[Point]) -> list[Evaluation | None]:
        """Evaluations in the order of ``points``; None for those the budget does not cover."""
        fresh = self._fresh(points)
        for start in range(0, len(fresh), 8):  # the cut-off follows the best time
            chunk = fresh[start : start + min(8, self.remaining())]
            if not chunk:
                break
            for evaluation in self.evaluate_batch(chunk, CUT_OFF_FACTOR * self.best_seconds):
                self.known[self.space.key(evaluation.point)] = evaluation
                self.spent += not evaluation.reused
        self.stalled = 0 if fresh else self.stalled + 1
        return [self.known.get(self.space.key(p)) for p in points]

    def _fresh(self, points: Sequence[Point]) -> list[Point]:
        distinct = {self.space.key(p): p for p in points}
        return [p for key, p in distinct.items() if key not in self.known]

    def check(self) -> None:
        if self.remaining() == 0:
            self.stopped = "budget spent"
            raise _Finished


def search(
    space: Space,
    evaluate_batch: EvaluateBatch,
    *,
    order_hint: Estimate | None = None,
    start: Sequence[Point] = (),
    alternatives: Sequence[Point] = (),
    budget: Budget = _USUAL,
    strategy: str = DEFAULT_STRATEGY,
    seed: int = 1,
    race: Race | None = None,
    finalists: int = 8,
) -> SearchResult:
    """Evaluate ``start`` and the model's favourites, then let the strategy go on from the best of them.

    ``alternatives``: good points far from each other, up to half of the favourites; without a model none.
    ``race`` times the best ``finalists`` and the first of all once more; a share of the seconds is its own.
    Raises ``Refusal`` (MDH605) where Kernel Tuner is not installed, ``ValueError`` for an unknown strategy.
    """
    name = STRATEGIES.get(strategy, strategy)
    if name not in STRATEGIES.values():
        raise ValueError(f"unknown strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    share = budget.seconds * _FOR_THE_RACE if race is not None and budget.seconds is not None else 0.0
    searching = Budget(budget.evaluations, budget.seconds and budget.seconds - share)
    kernel_tuner, first = _kernel_tuner(), list[Point]()  # its import is not part of the budget
    ledger = _Ledger(space, evaluate_batch, searching)
    with contextlib.suppress(_Finished):
        ledger.evaluate(start)  # before the model takes its time, which may be longer than the budget
        ledger.check()
        if order_hint is not None:
            first = _first(space, order_hint, start, alternatives, _favourites(budget), seed)
        ledger.check()
        ledger.evaluate([p for p in first if p not in start])
        ledger.check()
        _run_strategy(kernel_tuner, name, ledger, seed)
    result = _result(ledger, strategy, seed, finalists)
    return result if race is None else _raced(result, [*start, *first][:1], race, share or _RACE_SECONDS)


def first_choice(
    space: Space, evaluate_batch: EvaluateBatch, *, order_hint: Estimate | None, seed: int = 1, count: int = 1
) -> SearchResult:
    """Without a search: the cost model's favourites only."""
    ledger = _Ledger(space, evaluate_batch, Budget())
    ledger.evaluate(best_estimated(space, order_hint, count, seed))
    ledger.stopped = "no search"
    return _result(ledger, MODEL, seed, count)


def _first(
    space: Space,
    estimate: Estimate,
    start: Sequence[Point],
    alternatives: Sequence[Point],
    count: int,
    seed: int,
) -> list[Point]:
    """``count`` points: in turn one of the best by the model, and one of those far from it, up to half."""
    near = best_estimated(space, estimate, count, seed, near=[*start, *alternatives])
    far = [p for p in alternatives if p not in near and p not in start][: count // 2]
    turns = itertools.zip_longest(near[: count - len(far)], far)
    return [p for pair in turns for p in pair if p is not None]


def _favourites(budget: Budget) -> int:
    return FAVOURITES if budget.evaluations is None else max(1, min(FAVOURITES, budget.evaluations // 4))


def _result(ledger: _Ledger, strategy: str, seed: int, finalists: int) -> SearchResult:
    evaluations = tuple(ledger.known.values())
    leaders = _distinct(sorted((e for e in evaluations if e.ok), key=lambda e: e.seconds))[:finalists]
    return SearchResult(evaluations, tuple(leaders), strategy, seed, ledger.stopped)


def _distinct(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The first of those with the same code."""
    first: dict[object, Evaluation] = {}
    for e in evaluations:
        first.setdefault(e.text or id(e), e)
    return list(first.values())


def _raced(result: SearchResult, incumbent: Sequence[Point], race: Race, seconds: float) -> SearchResult:
    """The leaders in the order of a race, in which the incumbent takes part if it ran at all."""
    leaders = list(result.leaders)
    if not leaders:
        return result
    known = [e for e in result.evaluations if e.ok and e.point in incumbent]
    leaders = _distinct([*known, *leaders])
    times = race(leaders, 0, seconds)
    renewed = [
        replace(e, outcome=Outcome(e.outcome.kind, IN_TURN), seconds=t, times=(t,))
        for e, t in zip(leaders, times, strict=True)
    ]
    order = sorted((e for e in renewed if e.ok), key=lambda e: e.seconds)
    return replace(result, leaders=tuple(order))


# --------------------------------------------------------------------------- Kernel Tuner


def _kernel_tuner() -> Any:
    """The modules needed, or MDH605."""
    try:
        modules = ("interface", "util", "searchspace", "runners.runner")
        return {m: importlib.import_module(f"kernel_tuner.{m}") for m in modules}
    except ImportError as error:
        text = f"the search needs Kernel Tuner, which cannot be imported ({error.name or error})"
        raise Refusal(Diagnostic("MDH605", text, help="pip install mdh-lift[tune]")) from error


@dataclass(frozen=True, slots=True)
class _Device:
    """What some strategies ask of a runner's device."""

    max_threads: int = 1 << 30
    name: str = "mdh-lift"
    units: Mapping[str, str] = field(default_factory=dict)


def _make_runner(kt: Any, ledger: _Ledger) -> Any:
    util = kt["util"]

    class LedgerRunner(kt["runners.runner"].Runner):  # type: ignore[misc]
        """Kernel Tuner's view of the ledger: a batch of configurations in, a list of result dicts out."""

        def __init__(self) -> None:
            super().__init__()
            self.dev = _Device()
            self.units = self.dev.units
            self.quiet = True
            self.simulation_mode = False
            self.until = 1 << 30  # size of the ledger at which a strategy is interrupted

        def get_device_info(self) -> _Device:
            return self.dev

        def get_environment(self, tuning_options: Any) -> dict[str, str]:
            return {"device_name": self.dev.name}

        def run(self, parameter_space: Any, tuning_options: Any) -> list[dict[str, Any] | None]:
            names = ledger.space.names
            points = [dict(zip(names, element, strict=True)) for element in parameter_space]
            self.accumulated_strategy_time = 0
            try:
                evaluations = ledger.evaluate(points)
            except Exception as error:
                ledger.error = error
                raise
            if ledger.remaining() == 0 or ledger.stalled > _STALL or len(ledger.known) >= self.until:
                raise util.StopCriterionReached("mdh-lift: enough")
            return [None if e is None else _kt_result(util, e) for e in evaluations]

    return LedgerRunner()


def _kt_result(util: Any, evaluation: Evaluation) -> dict[str, Any]:
    timings = ("compile_time", "verification_time", "benchmark_time", "framework_time", "strategy_time")
    result: dict[str, Any] = {**evaluation.point, **dict.fromkeys(timings, 0.0), "timestamp": ""}
    if evaluation.ok:
        return {**result, "time": 1000.0 * evaluation.seconds, "times": [1000.0 * evaluation.seconds]}
    kind = evaluation.outcome.kind
    if kind == COMPILE_FAILED:
        return {**result, "__error__": util.CompilationFailedConfig()}
    invalid = kind in (NOT_GENERATED, UNKNOWN)
    return {**result, "__error__": util.InvalidConfig() if invalid else util.RuntimeFailedConfig()}


def _options(kt: Any, ledger: _Ledger, name: str, size: int) -> Any:
    options_class, util = kt["interface"].Options, kt["util"]
    evaluations = size if name == "brute_force" else min(ledger.remaining(), size, _ROUND)
    good = _good(ledger)
    strategy_options: dict[str, Any] = {} if name == "brute_force" else {"max_fevals": evaluations}
    if good and name in _TAKES_START:
        strategy_options["x0"] = list(ledger.space.key(good[0].point))
    return options_class(
        {
            "strategy_options": options_class(strategy_options),
            "max_fevals": evaluations,
            "budget": util.TuningBudget(None, 1 << 30),  # the ledger counts
            "objective": ["time"],
            "objective_higher_is_better": [False],
            "tune_params": {n: list(v) for n, v in ledger.space.parameters},
            "restrictions": [],
            "metrics": None,
            "verbose": False,
            "quiet": True,
            "cache": {},
            "cachefile": None,
            "simulated_time": 0,
        }
    )


def _good(ledger: _Ledger) -> list[Evaluation]:
    """What ran well so far, fastest first."""
    return sorted((e for e in ledger.known.values() if e.ok), key=lambda e: e.seconds)


def _run_strategy(kt: Any, name: str, ledger: _Ledger, seed: int) -> None:
    """Again from the best so far, as long as budget is left; where it runs dry, random unseen points."""
    strategy, runner = kt["interface"].strategy_map[name], _make_runner(kt, ledger)
    with _seeded(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in range(1 << 20):
            points = working_set(ledger.space, [e.point for e in _good(ledger)[:8]], seed + turn)
            unseen = [p for p in points if ledger.space.key(p) not in ledger.known]
            if not unseen:
                return
            before = len(ledger.known)
            _tune(kt, strategy, name, _searchspace(kt, ledger, points), runner, ledger)
            ledger.check()
            if len(ledger.known) == before:
                ledger.evaluate(random.sample(unseen, min(4, len(unseen))))
            ledger.stalled = 0


def _tune(kt: Any, strategy: Any, name: str, space: Any, runner: Any, ledger: _Ledger) -> None:
    options = _options(kt, ledger, name, space.size)
    runner.until = len(ledger.known) + (options.max_fevals if name != "brute_force" else 1 << 30)
    try:
        strategy.tune(space, runner, options)
    except kt["util"].StopCriterionReached:
        pass
    except Exception:  # some strategies fail on tiny spaces
        if ledger.error is not None:
            raise


def _searchspace(kt: Any, ledger: _Ledger, points: list[Point]) -> Any:
    """Kernel Tuner's search space over these points: it need not understand our restrictions."""
    parameters = {n: list(v) for n, v in ledger.space.parameters}
    listed = {"tune_params": parameters, "cache": {str(k): p for k, p in enumerate(points)}}
    return kt["searchspace"].Searchspace(None, None, None, from_cache=listed)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Kernel Tuner draws from the global generators: seed them, and restore them afterwards."""
    numpy_random = importlib.import_module("numpy.random")
    python_state, numpy_state = random.getstate(), numpy_random.get_state()
    random.seed(seed)
    numpy_random.seed(seed % (1 << 32))
    try:
        yield
    finally:
        random.setstate(python_state)
        numpy_random.set_state(numpy_state)
