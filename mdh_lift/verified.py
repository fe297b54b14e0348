"""Which record says that code was compiled, run and compared on such a machine: for `splice` and `--frozen`.

    Work -> SearchRecord of exactly the text that is generated now

Nothing is compiled or run here.  What counts is the text, by its hash: a record of another configuration, of
another version's code or of another nest is none.  Code of which any record says that it was wrong is never
taken.  Shown right by ``tests/test_splice_recorded.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mdh_core.diagnostics import Refusal, refuse
from mdh_core.source import Span
from mdh_lift import recorded
from mdh_lift.pipeline import FileReport, NestReport, Options, short_name
from tuning.accelerator import Accelerator, stated
from tuning.devices import nvidia_models
from tuning.fingerprint import fingerprint
from tuning.records import VERIFY, SearchRecord
from tuning.results import text_hash
from tuning.runner import WRONG_RESULT
from tuning.store import StoreError
from tuning.toolchain import Toolchain

if TYPE_CHECKING:
    from mdh_lift.improve import Work


def verified(work: Work) -> SearchRecord:
    """The record that is taken: of the lock's choice where it fits to the nest, else the newest one.

    One without a winner where the last search found none.  Raises MDH520 (``--locked``), MDH522 or MDH525
    where nothing is known, MDH701.
    """
    options, block = work.options, recorded.block(work)
    named = "" if block is None else str(block.get("record", ""))
    locked = recorded.expect_locked(work) if options.locked else recorded.locked_point(work)
    about = _records(work)
    mine = [r for r in about if r.finished and r.size_class == work.size_class]
    of_lock = [] if locked is None or block is None else [
        r for r in mine if r.locked_text == block.get("text_hash")
    ]  # fmt: skip
    won = [] if options.locked else [r for r in reversed(mine) if r.winner]
    searches = sorted(won, key=lambda r: not r.is_search)  # what was chosen before what was only looked at
    tried = [*(r for r in of_lock if r.id == named), *reversed(of_lock), *searches]
    found = next((r for r in tried if r.strategy != VERIFY and _is_text_of(r, work)), None)
    if found is None and options.force:  # the times of `verify` do not decide, but that is no matter then
        found = next((r for r in tried if _is_text_of(r, work)), None)
    if found is not None:
        _test_for_wrong(work, found.winner_text, about)
        return found
    if not tried:
        nothing = [r for r in mine if r.is_search and not r.winner]
        if nothing and not options.locked:
            return nothing[-1]
    why = _why_not(work, tried, about, named if options.locked else "")
    raise unproved(work.report, work.nest, options, why)


def together(work: Work) -> SearchRecord | None:
    """The record of several kernels as one, whose plan ``work`` has; None where they were not run together.

    Raises MDH521, MDH701.
    """
    machine = work.record.fingerprint if work.record is not None else ""
    about = _records(work, machine)
    for r in reversed(about):
        if not r.finished or r.size_class != work.size_class or not _is_text_of(r, work):
            continue
        if r.strategy != VERIFY or work.options.force:
            _test_for_wrong(work, r.winner_text, about)
            return r
    return None


def unproved(report: FileReport, nest: NestReport, options: Options, why: str) -> Refusal:
    """MDH522 with ``--frozen``, else MDH525: nothing is put in place, and what has to be run first."""
    source, name = report.source, short_name(nest.name)
    if options.frozen:
        headline = f"`{name}` is not known to be verified on this machine: {why}"
        advice = "run it without `--frozen`, or merge its database: `mdh-lift db merge`"
        return refuse("MDH522", headline, _at(report, nest), help=advice)
    target = f" --target {options.target}" if options.target else ""
    style = f" --style {options.style}" if options.style else ""
    more = f"{target}{style} {source.path}"
    headline = f"nothing verified is recorded for `{name}`: {why}"
    advice = f"`mdh-lift tune{more}` makes it, then splice again; `mdh-lift -w{more}` does both"
    return refuse("MDH525", headline, _at(report, nest), help=advice)


def _at(report: FileReport, nest: NestReport) -> Span:
    """The line of the directive, in the file as it stands."""
    return report.source.line_span(nest.line)


def _records(work: Work, machine: str = "") -> list[SearchRecord]:
    """All that is recorded of the nest as it is, on such a machine and for its target, oldest first."""
    if not work.options.database_path.is_file():
        return []
    with recorded.store_of(work.options, create=False) as store:
        try:
            return store.searches(
                recorded.text_name(work.lock_name),
                source_hash=work.hash,
                target=work.target,
                fingerprint=machine or recorded.own_fingerprint(work),
            )
        except StoreError as error:
            raise recorded.told(error) from None


def _is_text_of(record: SearchRecord, work: Work) -> bool:
    """Whether exactly the code that is generated now for the record's choice was compared."""
    point = record.winning_point
    if point is None or point.keys() != set(work.plan.space.names):
        return False
    if recorded.text_of(work, point) != record.locked_text:
        return False
    try:
        return text_hash(recorded.given(work.plan.candidate)(point)) == record.winner_text
    except (Refusal, ValueError):
        return False


def _test_for_wrong(work: Work, text: str, records: Iterable[SearchRecord]) -> None:
    """Raises MDH701 where any record says that this code gave a wrong result, at whatever size."""
    for r in records:
        for step in r.steps:
            if step.text_hash == text and step.outcome == WRONG_RESULT:
                note = f"record {r.id or r.token} of the database says so; the code is not put in place"
                raise refuse("MDH701", f"emitted code gave a wrong result: {step.reason}",
                             _at(work.report, work.nest), notes=(note,),
                             help="`mdh-lift tune --no-resume` chooses again")  # fmt: skip


def _why_not(
    work: Work, tried: Sequence[SearchRecord], about: Sequence[SearchRecord], record: str
) -> str:
    if not work.options.database_path.is_file():
        return f"there is no database `{work.options.database_path.name}`"
    if record and not tried:
        return f"the database has no record `{record}` of it"
    if any(r.strategy == VERIFY and _is_text_of(r, work) for r in tried):
        return "it was compared, but not measured: `mdh-lift bench` does"
    if tried:
        return "other code is generated now than what was verified"
    if about:
        return f"it was not tuned at these sizes ({work.size_class})"
    machines, changed = _elsewhere(work)
    if machines:
        return f"it was tuned for other machines, flags or targets only ({', '.join(machines)})"
    return "it changed since it was tuned" if changed else "it was not tuned"


def _elsewhere(work: Work) -> tuple[list[str], bool]:
    """Machines of which there are records of the nest as it is; whether there are any of it as it was."""
    with recorded.store_of(work.options, create=False) as store:
        try:
            found = store.searches(recorded.text_name(work.lock_name))
        except StoreError as error:
            raise recorded.told(error) from None
    return sorted({r.fingerprint for r in found if r.source_hash == work.hash}), bool(found)


# --------------------------------------------------------------------------- GPUs


def gpu_of(
    report: FileReport, nest: NestReport, options: Options, name: str, source_hash: str, target: str,
    toolchain: Toolchain, exact: bool, threads: int,
) -> Accelerator:  # fmt: skip
    """The GPU of this machine, as far as records name it: asking for it would run code.

    A record counts if its fingerprint is that of this processor, compiler and flags with the GPU and the GPU
    compiler that it names.  Raises MDH522 or MDH525 where there is none, or several, or another GPU is here.
    """
    records: list[SearchRecord] = []
    if options.database_path.is_file():
        with recorded.store_of(options, create=False) as store:
            try:
                records = store.searches(recorded.text_name(name), source_hash=source_hash, target=target)
            except StoreError as error:
                raise recorded.told(error) from None
    found: dict[str, Accelerator] = {}
    for r in records:
        device, called = recorded.device_in(r.machine), r.versions.get("device", "")
        if device is None or not r.finished:
            continue
        by = stated(target, toolchain.cc, r.versions.get(f"compiler for {target}", ""), called, exact)
        if fingerprint(replace(toolchain, accelerator=by), threads) == r.fingerprint:
            found[r.fingerprint] = replace(by, limits=device)
    here = nvidia_models() if target == "cuda" else []
    fitting = {k: v for k, v in found.items() if not here or v.device.startswith(tuple(here))}
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    devices = ", ".join(sorted({f"`{v.device}`" for v in (fitting or found).values()}))
    if fitting:
        why = f"records for {target} name several devices or GPU compilers ({devices})"
        raise unproved(report, nest, options, f"{why}, and asking which is here runs code")
    if found:
        raise unproved(report, nest, options, f"it was verified on {devices}, and here is {', '.join(here)}")
    why = f"no record for {target} is of this processor, compiler and flags"
    if not options.database_path.is_file():
        why = f"there is no database `{options.database_path.name}`"
    raise unproved(report, nest, options, why)
