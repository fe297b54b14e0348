"""What lock file and database know of a nest: the locked choice, its proof, what to replay, near machines.

    Work -> block of the lock, record of the database, point of another machine

Nothing is compiled or run here.  ``improve`` decides what to do with it; ``tests/test_recorded.py``.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from lowering.device import Device
from lowering.machine import this_machine
from lowering.point import Point
from mdh_core.diagnostics import Refusal, refuse
from mdh_lift import kernels
from mdh_lift.classes import SeveralPlan
from mdh_lift.gpu_plans import GpuPlan
from mdh_lift.pipeline import Options
from mdh_lift.version import VERSION
from tuning import lock as locks
from tuning.budget import DEFAULT_STRATEGY, parse_budget
from tuning.fingerprint import description, fingerprint
from tuning.harness import Candidate
from tuning.measure import ratio_of
from tuning.nearest import distance, kind_of
from tuning.records import BENCH, IN_LOCK, VERIFY, SearchRecord
from tuning.results import text_hash
from tuning.search import MODEL
from tuning.store import Context, Store, StoreError
from tuning.toolchain import Toolchain

if TYPE_CHECKING:
    from mdh_lift.improve import Work

LOCKED, NEAREST = "locked", "nearest"  # strategies: whose choice was taken
_MACHINE = ("cores", "vector_bytes", "registers", "l1", "l2", "l3")  # what code is generated for
_NOT_LOCKED = ("notes", "max_abs", "max_rel")  # of a verification


# --------------------------------------------------------------------------- lock and database


def lock_of(options: Options) -> locks.Lock:
    """The lock file.  Raises ``Refusal`` MDH511."""
    try:
        return locks.read(options.lock_path)
    except locks.LockError as error:
        raise refuse("MDH511", f"the lock file cannot be read: {error}", file=str(options.lock_path),
                     help=error.help) from None  # fmt: skip


def store_of(options: Options, create: bool = True) -> Store:
    """The database.  Raises ``Refusal`` MDH521."""
    try:
        return Store(options.database_path, create=create)
    except StoreError as error:
        raise told(error) from None


def told(error: StoreError) -> Refusal:
    """A failure of the database as a diagnostic."""
    return refuse("MDH521", f"the tuning database cannot be used: {error}")


def own_fingerprint(work: Work) -> str:
    return fingerprint(work.bench.toolchain, work.bench.threads)


def block(work: Work) -> dict[str, Any] | None:
    """The block of this nest, machine and size class.  Raises MDH511."""
    return locks.find(lock_of(work.options), work.lock_name, own_fingerprint(work), work.size_class)


def locked_point(work: Work) -> Point | None:
    """The locked choice, if it was made from this source on such a machine.

    Raises MDH511, also where it is none from which code can be made.
    """
    point = _matching(work)
    if point is not None and text_of(work, point) is None:
        raise refuse("MDH511", f"the lock file has no usable configuration of `{work.lock_name}`",
                     file=str(work.options.lock_path), help="`mdh-lift tune` chooses one")  # fmt: skip
    return point


def _matching(work: Work) -> Point | None:
    found = block(work)
    return _point(found) if found is not None and found.get("source_hash") == work.hash else None


def _point(of: Mapping[str, Any]) -> Point | None:
    configuration = of.get("configuration")
    point = configuration.get("point") if isinstance(configuration, dict) else None
    if not isinstance(point, dict) or any(type(v) not in (int, str) for v in point.values()):
        return None
    return dict(point)


def given(make: Callable[[Point], Candidate]) -> Callable[[Point], Candidate]:
    """The generator for points of a file, which may be of another version: ``ValueError`` for those."""

    def made(point: Point) -> Candidate:
        try:
            return make(point)
        except (LookupError, TypeError, ArithmeticError, AssertionError) as error:
            raise ValueError(f"no code for the stated configuration ({type(error).__name__})") from None

    return made


def is_usable(work: Work, point: Point) -> bool:
    """Whether another machine's point is one for this nest: it has the same parameters, and gives code."""
    return point.keys() == set(work.plan.space.names) and text_of(work, point) is not None


def is_current(work: Work, point: Point) -> bool:
    """Whether the code that is generated now is that of the lock.  Raises MDH511."""
    found = block(work)
    return found is not None and text_of(work, point) == found.get("text_hash")


def text_of(work: Work, point: Point) -> str | None:
    """Hash of the code of a point as the lock file has it; None where none can be made."""
    try:
        return text_hash(given(lambda p: work.plan.candidate(p, described=True))(point))
    except (Refusal, ValueError):
        return None


def text_name(name: str) -> str:
    """A nest's name in the database: bytes of a file's name that are no text are written as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


# --------------------------------------------------------------------------- what is recorded


def called(stage: str, named: str) -> str:
    """What a run is called in the database where it is no search; ``named``: for what it was started."""
    return {"verify": VERIFY, "bench": BENCH}.get(stage, named)


def is_of_lock(work: Work, record: SearchRecord, stage: str) -> bool:
    """Whether the lock file stays as it is: it says so already, or nothing was chosen.  Raises MDH511."""
    if stage not in ("all", "tune", "splice") or record.strategy == IN_LOCK:
        return True
    point, found = record.winning_point, block(work)
    if not work.options.runs_nothing or work.options.replay or point is None or found is None:
        return False
    locked = _matching(work)
    return record.id != found.get("record") and point == locked and is_current(work, locked)


def store_for(work: Work, stage: str) -> Store | None:
    """The database that a run is recorded in.  Raises MDH521; what `verify` and `bench` saw may be lost."""
    try:
        return store_of(work.options)
    except Refusal:
        if stage in ("verify", "bench"):
            return None
        raise


def is_tuned(work: Work) -> bool:
    """Whether a choice was made for this source and size on this machine.  Raises MDH511, MDH521."""
    if _matching(work) is not None:
        return True
    if not work.options.database_path.is_file():
        return False
    same = {"source_hash": work.hash, "size_class": work.size_class, "fingerprint": own_fingerprint(work)}
    with store_of(work.options, create=False) as store:
        return any(r.winner and r.is_search for r in store.searches(text_name(work.lock_name), **same))


def context(work: Work, seed: int) -> Context:
    """What all evaluations of a search of this nest have in common."""
    toolchain = work.bench.toolchain
    machine = {**description(toolchain, work.bench.threads), **written_for(work.plan)}
    return Context(
        text_name(work.lock_name),
        work.hash,
        own_fingerprint(work),
        work.size_class,
        " ".join(toolchain.flags),
        toolchain.version,
        seed,
        VERSION,
        work.target,
        machine,
        versions(toolchain),
    )


def written_for(plan: kernels.Plan | GpuPlan | SeveralPlan) -> dict[str, Any]:
    """What the generated text depends on beside the source and the point."""
    if isinstance(plan, SeveralPlan):
        return written_for(plan.chosen[0].plan)
    if isinstance(plan, GpuPlan):
        return {"device": asdict(plan.device)}
    return {"machine": {name: getattr(plan.machine, name) for name in _MACHINE}}


def versions(toolchain: Toolchain) -> dict[str, str]:
    found = {"mdh-lift": VERSION, "compiler": toolchain.version}
    for name in ("islpy", "kernel-tuner"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    gpu = toolchain.accelerator
    if gpu is not None:
        found |= {f"compiler for {gpu.target}": gpu.version, "device": gpu.device}
    return found


def entry(work: Work, record: SearchRecord) -> locks.Entry:
    """What the lock file says of a search: the same wherever it is made from the record.

    Where the record is of the locked choice alone, it stays said how that was found.
    """
    return entry_named(work.lock_name, record, block(work) if record.strategy == LOCKED else None)


def entry_named(name: str, record: SearchRecord, before: Mapping[str, Any] | None = None) -> locks.Entry:
    """``name``: the nest's in the lock file; ``before``: the entry of which ``seed`` and the like stay."""
    how = before or {"seed": record.seed, "strategy": record.strategy, "budget": record.budget}
    made_for = {name: record.machine[name] for name in ("machine", "device") if name in record.machine}
    return locks.Entry(
        name,
        record.fingerprint,
        record.size_class,
        record.source_hash,
        {"point": record.winning_point, **made_for},
        record.locked_text,
        ratio_of(record.pairs),
        {name: v for name, v in record.verification.items() if name not in _NOT_LOCKED},
        how.get("seed", record.seed),
        how.get("strategy", record.strategy),
        how.get("budget", record.budget),
        record.versions,
        record.id,
    )


# --------------------------------------------------------------------------- --locked, --frozen


def expect_locked(work: Work) -> Point:
    """The locked point, from which the code in the lock comes.  Raises MDH520 where the lock would change."""
    path, name = work.options.lock_path.name, work.lock_name
    found = block(work)
    if found is None:
        others = lock_of(work.options)["nests"].get(name, {})
        why = f"`{name}` has no entry for this machine and size" if others else f"`{name}` has no entry"
        raise _would_change(path, f"{why} ({own_fingerprint(work)}, {work.size_class})")
    point = _point(found)
    if found.get("source_hash") != work.hash or point is None:
        raise _would_change(path, f"the entry of `{name}` is of another version of the nest")
    made = text_of(work, point)
    if made is None:
        raise _would_change(path, f"no code is generated for the configuration of `{name}`")
    if made != found.get("text_hash"):
        raise _would_change(path, f"other code is generated now for the configuration of `{name}`")
    return point


def expect_entries(options: Options, entries: Sequence[locks.Entry]) -> None:
    """Raises MDH520 unless the lock file holds exactly these entries."""
    lock = lock_of(options)
    for e in entries:
        before = locks.find(lock, e.nest, e.fingerprint, e.size_class)
        different = locks.changes(before, locks.block_of(e))
        if different:
            what = f"`{e.nest}` for {e.fingerprint} at {e.size_class}: {', '.join(different)}"
            raise _would_change(options.lock_path.name, what)


def _would_change(path: str, why: str) -> Refusal:
    return refuse("MDH520", f"`{path}` would change: {why}",
                  help="run it without `--locked`, and commit the lock file")  # fmt: skip


# --------------------------------------------------------------------------- --replay


@dataclass(frozen=True, slots=True)
class Wanted:
    """The search that is to be replayed, as far as it is known before its record."""

    nest: str
    source_hash: str
    size_class: str
    target: str
    here: str  # fingerprint of this machine; empty where it is not known


def to_replay(options: Options, wanted: Wanted) -> SearchRecord:
    """The newest finished search with these settings.  Raises MDH521, MDH523.

    Of this machine, or the one that ``--fingerprint`` names, or the only one of which there is one.
    """
    tune = options.config.tune
    budget = parse_budget(tune.budget)
    strategy = DEFAULT_STRATEGY if tune.strategy == "auto" else tune.strategy
    allowed = (MODEL, NEAREST) if budget.nothing else (strategy, MODEL, NEAREST)
    same = {n: getattr(wanted, n) for n in ("source_hash", "size_class", "target")}
    if not options.database_path.is_file():
        raise _nothing(wanted, f"there is no database `{options.database_path.name}`")
    with store_of(options, create=False) as store:
        try:
            records = store.searches(text_name(wanted.nest), seed=tune.seed, budget=str(budget), **same)
        except StoreError as error:
            raise told(error) from None
    by_machine: dict[str, SearchRecord] = {}
    for r in records:
        if r.finished and r.strategy in allowed:
            by_machine[r.fingerprint] = r
    if options.fingerprint:
        by_machine = {f: r for f, r in by_machine.items() if f == options.fingerprint}
    elif wanted.here in by_machine:
        return by_machine[wanted.here]
    if len(by_machine) > 1:
        names = ", ".join(sorted(by_machine))
        why = f"searches on several machines are recorded: {names}"
        raise _nothing(wanted, why, "`--fingerprint` names one")
    if not by_machine:
        settings = f"seed {tune.seed}, budget {budget} and strategy {strategy}"
        raise _nothing(wanted, f"there is no finished search with {settings}")
    return next(iter(by_machine.values()))


def _nothing(wanted: Wanted, why: str, advice: str = "") -> Refusal:
    return refuse("MDH523", f"`{wanted.nest}` cannot be replayed: {why}",
                  help=advice or "`mdh-lift db list` says what is recorded")  # fmt: skip


def device_of(record: SearchRecord) -> Device:
    """The GPU that code was generated for.  Raises MDH523."""
    device = device_in(record.machine)
    if device is None:
        raise refuse("MDH523", f"record {record.id} of `{record.nest}` does not say which device it is for")
    return device


def device_in(known: Mapping[str, Any]) -> Device | None:
    """The GPU that a record or an entry of the lock names."""
    stated, names = known.get("device"), {f.name for f in fields(Device)}
    if not isinstance(stated, dict) or "name" not in stated:
        return None
    return Device(**{n: v for n, v in stated.items() if n in names})


def here(toolchain: Toolchain) -> str:
    """The fingerprint of this machine for OpenMP."""
    return fingerprint(toolchain, this_machine().cores)


def on_machine(plan: kernels.Plan, stated: object) -> kernels.Plan:
    """The plan that a machine has of which a record or an entry of the lock says what it is."""
    known = stated if isinstance(stated, Mapping) else {}
    own: dict[str, Any] = {n: int(known[n]) for n in _MACHINE if n in known}
    return replace(plan, machine=replace(plan.machine, **own))


# --------------------------------------------------------------------------- near machines


@dataclass(frozen=True, slots=True)
class Near:
    """The choice that was made on a machine like this one."""

    fingerprint: str
    point: Point
    words: str  # what kind of machine


def nearest(work: Work) -> Near | None:
    """What was chosen for this source and size on the machine most like this one; None where nothing was.

    It may be wrong or slow here: whoever takes it verifies and measures it.  Raises MDH511, MDH521.
    """
    own = kind_of(own_fingerprint(work), written_for(work.plan).get("machine"))
    if own is None:
        return None
    found = []
    for name, point, machine in _elsewhere(work):
        kind = kind_of(name, machine)
        far = None if kind is None else distance(own, kind)
        if kind is not None and far is not None and name != own_fingerprint(work):
            found.append((far, name, Near(name, point, kind.words)))
    return min(found, key=lambda f: f[:2])[2] if found else None


def _elsewhere(work: Work) -> list[tuple[str, Point, Mapping[str, Any] | None]]:
    """Fingerprint, point and machine of all choices for this source and size, those of the lock first."""
    found: dict[str, tuple[str, Point, Mapping[str, Any] | None]] = {}
    for name, classes in lock_of(work.options)["nests"].get(work.lock_name, {}).items():
        one = classes.get(work.size_class) if isinstance(classes, dict) else None
        point = _point(one) if isinstance(one, dict) and one.get("source_hash") == work.hash else None
        if one is not None and point is not None:
            found[name] = (name, point, one["configuration"].get("machine"))
    if work.options.database_path.is_file():
        with store_of(work.options, create=False) as store:
            try:
                same = {"source_hash": work.hash, "size_class": work.size_class, "target": work.target}
                records = store.searches(text_name(work.lock_name), **same)
            except StoreError as error:
                raise told(error) from None
        for r in records:
            point = r.winning_point
            if r.finished and r.is_search and point is not None:
                found.setdefault(r.fingerprint, (r.fingerprint, point, r.machine.get("machine")))
    return list(found.values())
