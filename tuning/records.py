"""What is kept of a search: one ``SearchRecord`` with its steps in order, as values and as plain JSON.

A record says everything that a replay, a report or another machine needs: what was tuned and how, every
evaluation with its outcome, what won, how it was verified and measured.  Its ``id`` is a hash of that
content, so that the same record has the same id in every database.  Shown right by
``tests/test_records.py``: a record survives the way through the database and through JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tuning.measure import quantile

SEARCH = "search"  # phases of a step
RACE = "race"
VERIFICATION = "verification"
# strategies of records that are no search: a choice that was known before was compared and measured again
IN_LOCK = "in lock"  # the lock's choice, and the code that it has of it
JOINT = "joint"  # the kernels of several classes of sizes, each of which has a record of its own
VERIFY, BENCH = "verify", "bench"  # by these verbs; the times of `verify` are too few to decide
IN_TURN = "timed in turn with the other leaders"  # reason of an ok outcome in a race
_OK = "ok"
_LOW_QUANTILE = 0.2
_NOT_CONTENT = ("id", "token", "started")  # what differs between two that say the same
_NUMBERS = (int, float)


class RecordError(ValueError):
    """Data that is no record; the message says where."""


@dataclass(frozen=True, slots=True)
class Step:
    """One evaluation of a search.

    ordinal        0, 1, ... in the order in which they ended
    offset         seconds since the search began
    phase          ``search``; ``race``: one of the leaders, timed again in turn with the others;
                   ``verification``: it led, and then failed the full verification
    configuration  the point, canonical JSON (sorted keys, no spaces)
    outcome        ``ok`` or why there is no time: the kinds of ``tuning.runner``; ``reason`` in words
    times          seconds of single runs; empty unless it ran to its end
    text_hash      of the generated code; configurations may share one.  Empty where none was made
    reused         taken from an earlier search or from a twin with the same code, so it cost no budget
    """

    ordinal: int
    offset: float
    phase: str
    configuration: str
    outcome: str
    reason: str = ""
    times: tuple[float, ...] = ()
    text_hash: str = ""
    reused: bool = False

    @property
    def ok(self) -> bool:
        return self.outcome == _OK and bool(self.times)

    @property
    def seconds(self) -> float:
        """The time that the search compares: the 20 % quantile of ``times``; infinite where there is none."""
        return low_quantile(self.times) if self.ok else math.inf

    @property
    def point(self) -> dict[str, Any]:
        return dict(json.loads(self.configuration))


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """One search of one nest, at one size, for one machine class.

    id             content hash; empty while the search runs, or where it was killed
    token          names it before it has an id; random
    nest           ``path::function::label``, the path from the lock file's directory
                   (of version 1 of the database: ``function::label``)
    source_hash    of the nest and what it uses; fingerprint, size_class: as in the lock file
    strategy       how the search went on: of ``tuning.budget.STRATEGIES``; ``model``: the cost model chose;
                   ``nearest``: that of another machine; ``locked``: that of the lock file; or no search:
                   ``in lock``, ``joint``, ``verify``, ``bench`` (above)
    budget         as text, for example ``30ev``
    started        seconds since 1970 (UTC)
    stopped        why it ended, in words; empty while it runs, or where it was killed
    machine        facts of the machine (``tuning.fingerprint.description``), without names and paths
    versions       of the tools: ``mdh-lift``, ``compiler``, ...
    original       seconds of single runs of the original nest, before the search
    steps          in order
    winner         configuration that won (canonical JSON); empty: none survived
    winner_text    hash of its code, as in ``Step.text_hash``; ``locked_text``: as in the lock file
    verification   what it was compared on (``VerifySummary`` as JSON)
    pairs          seconds of original and winner, run in turn, at the end
    measured       how that measurement ended: ``ok``, or what stopped it
    diagnostics    ``[{"code": ..., "message": ..., "help": ...}]``: what the search told
    """

    token: str
    nest: str
    source_hash: str
    fingerprint: str
    size_class: str
    flags: str
    compiler: str
    seed: int
    tool_version: str
    target: str
    strategy: str
    budget: str
    started: float
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    original: tuple[float, ...] = ()
    stopped: str = ""
    winner: str = ""
    winner_text: str = ""
    locked_text: str = ""
    verification: Mapping[str, Any] = field(default_factory=dict)
    pairs: tuple[tuple[float, float], ...] = ()
    measured: str = ""
    diagnostics: tuple[Mapping[str, str], ...] = ()
    steps: tuple[Step, ...] = ()
    id: str = ""

    @property
    def finished(self) -> bool:
        return bool(self.id)

    @property
    def is_search(self) -> bool:
        """Whether something was chosen; otherwise a choice that was known was only looked at again."""
        return self.strategy not in (IN_LOCK, JOINT, VERIFY, BENCH)

    @property
    def original_seconds(self) -> float:
        """Best single run of the original before the search; NaN where there is none."""
        return min(self.original, default=math.nan)

    @property
    def winning_point(self) -> dict[str, Any] | None:
        return dict(json.loads(self.winner)) if self.winner else None

    @property
    def winning_step(self) -> Step | None:
        """The last step in which the winner was timed."""
        own = [s for s in self.steps if s.configuration == self.winner and s.ok]
        return own[-1] if own else None

    def outcomes(self) -> dict[str, int]:
        """Number of configurations per outcome, each by its last step."""
        last = {s.configuration: s.outcome for s in self.steps}
        counts: dict[str, int] = {}
        for kind in last.values():
            counts[kind] = counts.get(kind, 0) + 1
        return dict(sorted(counts.items()))

    def best_so_far(self) -> list[tuple[int, float, float]]:
        """``(ordinal, offset, seconds)`` of each step of the search that beat all before it."""
        found: list[tuple[int, float, float]] = []
        for s in self.steps:
            if s.phase == SEARCH and s.ok and (not found or s.seconds < found[-1][2]):
                found.append((s.ordinal, s.offset, s.seconds))
        return found

    def with_id(self) -> SearchRecord:
        return replace(self, id=content_hash(self))


def low_quantile(values: Sequence[float]) -> float:
    """The 20 % quantile of times, by which searches compare: slow runs have causes outside the code."""
    return quantile(values, _LOW_QUANTILE)


# --------------------------------------------------------------------------- JSON


def to_json(record: SearchRecord) -> dict[str, Any]:
    """All fields, plain; configurations as objects."""
    plain = {f.name: getattr(record, f.name) for f in fields(record)}
    plain["winner"] = json.loads(record.winner) if record.winner else None
    plain["steps"] = [_step_json(s) for s in record.steps]
    return json.loads(json.dumps(plain, default=dict))  # type: ignore[no-any-return]


def _step_json(step: Step) -> dict[str, Any]:
    plain = {f.name: getattr(step, f.name) for f in fields(step)}
    return {**plain, "configuration": step.point}


def from_json(data: object) -> SearchRecord:
    """The record of ``to_json``.  Raises ``RecordError``; an id that is not that of the content is one."""
    record: SearchRecord = _built(SearchRecord, data, "record")
    winner = canonical(record.winner) if isinstance(record.winner, Mapping) else ""
    if not isinstance(record.steps, list) or not isinstance(record.diagnostics, list):
        raise RecordError("`steps` and `diagnostics` of a record are lists")
    steps = tuple(_step(data, k) for k, data in enumerate(record.steps))
    try:
        pairs = tuple((float(a), float(b)) for a, b in record.pairs)
        original = tuple(map(float, record.original))
    except (TypeError, ValueError) as error:
        raise RecordError(f"`pairs` or `original`: {error}") from None
    made = replace(
        record,
        winner=winner,
        steps=steps,
        pairs=pairs,
        original=original,
        diagnostics=tuple(record.diagnostics),
    )
    if made.id and made.id != content_hash(made):
        raise RecordError(f"record {made.id} of `{made.nest}` was changed: its id is not that of its content")
    return made


def _step(data: object, ordinal: int) -> Step:
    step: Step = _built(Step, data, f"step {ordinal}")
    if step.ordinal != ordinal or not isinstance(step.configuration, Mapping):
        raise RecordError(f"step {ordinal} has number {step.ordinal}, or no configuration")
    if not all(isinstance(t, _NUMBERS) for t in step.times):
        raise RecordError(f"step {ordinal}: `times` are seconds")
    return replace(
        step, configuration=canonical(step.configuration), times=tuple(step.times), reused=bool(step.reused)
    )


def _built(of: type[Any], data: object, where: str) -> Any:
    """A dataclass from an object with its fields, each with a value of the right kind."""
    if not isinstance(data, dict):
        raise RecordError(f"a {where} is an object")
    expected = {f.name: str(f.type) for f in fields(of)}
    unknown, missing = data.keys() - expected.keys(), expected.keys() - data.keys()
    if unknown or missing:
        names = ", ".join(sorted(unknown or missing))
        raise RecordError(f"{where}: {'unknown' if unknown else 'missing'} {names}")
    kinds: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": _NUMBERS, "bool": (bool,)}
    for name, kind in expected.items():
        right = kinds.get(kind, (dict,) if kind.startswith("Mapping") else (list,))
        if name in ("winner", "configuration"):
            right = (dict, type(None))
        if not isinstance(data[name], right):
            raise RecordError(f"{where}: `{name}` is {json.dumps(data[name])[:60]}")
    return of(**data)


def canonical(configuration: Mapping[str, Any]) -> str:
    return json.dumps(configuration, sort_keys=True, separators=(",", ":"))


def content_hash(record: SearchRecord) -> str:
    """16 hexadecimal digits; of all but the id itself, the token and when it started."""
    content = {k: v for k, v in to_json(record).items() if k not in _NOT_CONTENT}
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]
