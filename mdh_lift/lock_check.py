"""What is spliced, against the lock file: regenerated in memory and compared; nothing is compiled or run.

    for each spliced nest:   no entry                                            MDH505
                             entries, none for the nest as it stands             MDH506
                             no configuration generates the text that is there   MDH506, MDH503
                             one does, but was tuned for another machine         MDH504

A configuration in the lock has what its text depends on beside the source: the point of the search space, the
sizes it was chosen for, and the machine (for GPUs the device) that the generator wrote for.  So the same text
comes out wherever this runs.  Line numbers in the text (``gemm.c:12-18``) do not count.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.source import SourceFile
from mdh_lift import beside, macros
from mdh_lift.findings import Finding
from mdh_lift.pipeline import (
    FileReport,
    NestReport,
    Options,
    short_name,
    source_hash,
    splice_file,
)
from mdh_lift.splice import Region, SplicePart, regions
from mdh_lift.version import VERSION
from tuning import lock as locks

if TYPE_CHECKING:  # needed where something is spliced only
    from emit.gpu_file import GpuPart
    from emit.openmp_file import OpenmpPart

MOST = 64  # combinations of entries of the nests that share a GPU file


@dataclass(frozen=True, slots=True)
class Block:
    """An entry of the lock for a nest: its fingerprint, its sizes, and the rest."""

    fingerprint: str
    sizes: dict[str, int]
    content: Mapping[str, Any]

    @property
    def target(self) -> str:
        found = re.search(r"-(cuda|opencl)-[0-9a-f]+$", self.fingerprint)
        return found[1] if found else "openmp"

    @property
    def machine_class(self) -> str:
        """``linux-x86_64-icelake-2of4t``: what an entry of another compiler on the same machine shares."""
        found = re.match(r".*?-\d+of\d+t", self.fingerprint)
        return found[0] if found else self.fingerprint

    @property
    def configuration(self) -> Mapping[str, Any]:
        found = self.content.get("configuration")
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Made:
    """What an entry generates for its nest; where it has several classes of sizes, their entries together.

    ``apart``: in the file beside the source; ``hash``: of the text, as the entry has it.
    """

    block: Block
    part: SplicePart
    apart: tuple[GpuPart | OpenmpPart, ...]
    hash: str


def with_lock(report: FileReport, options: Options) -> FileReport:
    """The report with what the comparison finds, among the findings of each nest.

    A lock file that cannot be read is a finding of the file (MDH511).
    """
    spliced = [n for n in report.nests if n.regions]
    if not spliced:
        return report
    path = options.lock_path
    try:
        lock = locks.read(path)
    except locks.LockError as error:
        d = Diagnostic("MDH511", f"the lock file cannot be read: {error}", os.path.relpath(path),
                       help=error.help)  # fmt: skip
        return replace(report, findings=(*report.findings, Finding(d)))
    told = {n.name: found for n in spliced if (found := _missing(report, n, lock, options))}
    fresh = [n for n in spliced if n.name not in told and n.splice_state == "fresh" and n.lifted is not None]
    told |= _compared(report, fresh, lock, options)
    nests = tuple(
        replace(n, findings=(*n.findings, *told[n.name])) if n.name in told else n for n in report.nests
    )
    return replace(report, nests=nests)


def _blocks(report: FileReport, nest: NestReport, lock: locks.Lock, options: Options) -> list[Block]:
    """All entries of a nest, in the order of the lock."""
    name = f"{os.path.relpath(report.source.path, options.root)}::{short_name(nest.name)}"
    found = []
    for fingerprint, classes in lock["nests"].get(name, {}).items():
        for size_class, content in classes.items() if isinstance(classes, dict) else ():
            if isinstance(content, dict):
                found.append(Block(fingerprint, _sizes(size_class), content))
    return found


def _sizes(size_class: str) -> dict[str, int]:
    """``K=64,N=512``; nothing for a nest without sizes."""
    pairs = re.findall(r"(\w+)=(\d+)", size_class)
    return {name: int(value) for name, value in pairs}


def _missing(report: FileReport, nest: NestReport, lock: locks.Lock, options: Options) -> list[Finding]:
    """Targets without an entry: those that the nest is spliced for, and those that every nest must have."""
    there = {b.target for b in _blocks(report, nest, lock, options)}
    own = nest.lifted.nest.directive.targets if nest.lifted is not None else ()
    required = [t for t in options.config.lock.targets if not own or t in own]
    found = []
    for target in dict.fromkeys((_target(nest), *required)):
        if target not in there:
            name, path = short_name(nest.name), options.lock_path.name
            why = f"`{name}` has no entry for {target} in {path}" if there else f"`{name}` is not in {path}"
            again = f"mdh-lift tune --target {target} {report.source.path}::{name}"
            found.append(_about(report, nest.regions[0], "MDH505", why, f"`{again}` makes one"))
    return found


def _target(nest: NestReport) -> str:
    return next(iter(beside.included(nest.regions).values()), "openmp")


def _compared(
    report: FileReport, nests: Sequence[NestReport], lock: locks.Lock, options: Options
) -> dict[str, list[Finding]]:
    """Findings about nests whose splices are fresh and in the lock."""
    if not nests:
        return {}
    from mdh_lift.regenerated import generated

    text = SourceFile(report.source.path, report.bare.data)
    known = macros.definitions(text, report.command)
    told: dict[str, list[Finding]] = {}
    made: dict[str, list[Made]] = {}
    for nest in nests:
        assert nest.lifted is not None
        own = [b for b in _blocks(report, nest, lock, options) if b.target == _target(nest)]
        current = source_hash(text.data, nest.lifted.nest, known)
        matching = [b for b in own if b.content.get("source_hash") == current]
        if not matching:
            why = f"the entry of `{short_name(nest.name)}` was made from another version of the nest"
            again = f"`mdh-lift tune {report.source.path}::{short_name(nest.name)}` makes one of this"
            told[nest.name] = [_about(report, nest.regions[0], "MDH506", why, again)]
            continue
        made[nest.name] = generated(report, nest, matching)
    by_target: dict[str, list[NestReport]] = {}
    for nest in nests:
        if nest.name in made:
            by_target.setdefault(_target(nest), []).append(nest)
    for target, group in by_target.items():
        inline = [nest for nest in group if not beside.included(nest.regions)]
        together = [[nest] for nest in inline] + [[n for n in group if n not in inline]]
        for some in filter(None, together):
            equal = _equal(report, some, [made[n.name] for n in some], target)
            for nest, winner in zip(some, equal, strict=True):
                told[nest.name] = (
                    _unequal(report, nest, made[nest.name])
                    if winner is None
                    else _elsewhere(report, nest, winner, made[nest.name])
                )
    return {name: found for name, found in told.items() if found}


# --------------------------------------------------------------------------- the text that is there


def _equal(
    report: FileReport, nests: Sequence[NestReport], made: Sequence[Sequence[Made]], target: str
) -> list[Made | None]:
    """For each nest an entry that generates what is there; nests of one GPU file go together."""
    for combination in itertools.islice(itertools.product(*made), MOST):
        beside_it: dict[str, Any] = {}
        parts = [(n.lifted, p) for n, m in zip(nests, combination, strict=True) for p in m.apart]
        if parts:
            beside_it[target] = parts
        try:
            change = splice_file(report, [m.part for m in combination], force=True, apart=beside_it)
        except Refusal:
            continue
        name = report.source.path
        assert change.new is not None
        same = _bodies(change.new, nests, name) == _bodies(report.source.data, nests, name)
        files = all(
            _plain(part.new or b"", name) == _plain(part.old or b"", name) for part in change.beside
        )
        if same and files:
            return list(combination)
    return [None] * len(nests)


def _bodies(data: bytes, nests: Sequence[NestReport], source: str) -> list[tuple[str, str, bytes]]:
    """The generated text of nests without markers, which hold the version."""
    names = {r.name for n in nests for r in n.regions}
    found = []
    for region in regions(data):
        if region.name in names:
            found.append((region.name, region.kind, _plain(_body(region), source)))
    return found


def _body(region: Region) -> bytes:
    lines = region.text.replace(b"\r\n", b"\n").strip(b"\n").split(b"\n")
    return b"\n".join(lines[1:-1])


def _plain(text: bytes, source: str) -> bytes:
    """Without line numbers of the source, and without the mark at the end of a file, which has a sum."""
    name = Path(source).name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()
    text = re.sub(rb"(?m)^(/\*|#) mdh-lift end .*$", b"", text.replace(b"\r\n", b"\n"))
    return re.sub(re.escape(name) + rb":\d+-\d+", name, text)


# --------------------------------------------------------------------------- what is told


def _unequal(report: FileReport, nest: NestReport, made: Sequence[Made]) -> list[Finding]:
    """Why no entry generates what is there: this version generates another text, or the two do not match."""
    name = short_name(nest.name)
    region = nest.regions[0]
    if region.version != VERSION:
        # a text of the other version; whether it is the locked one, its hash in the entry tells
        if not made or any(m.hash != m.block.content.get("text_hash") for m in made):
            why = f"`{name}` was generated by mdh-lift {region.version}, and {VERSION} generates other text"
            advice = f"`mdh-lift splice -w {report.source.path}` makes it again"
            return [_about(report, region, "MDH503", why, advice)]
    elif made and not any({"machine", "device"} & m.block.configuration.keys() for m in made):
        own = {m.block.machine_class for m in made}
        if _here() not in own:
            why = f"`{name}` was tuned for {', '.join(sorted(own))}; it cannot be compared on this machine"
            return [_about(report, region, "MDH504", why, "`mdh-lift tune` adds an entry for this machine")]
    why = f"the generated code of `{name}` is not what its configuration in the lock file generates"
    advice = f"`mdh-lift splice -w {report.source.path}` makes the code again, `mdh-lift tune` the entry"
    return [_about(report, region, "MDH506", why, advice)]


def _elsewhere(
    report: FileReport, nest: NestReport, winner: Made, made: Sequence[Made]
) -> list[Finding]:
    """MDH504 where no entry of this text is for a machine like this one."""
    here = _here()
    if any(m.block.machine_class == here and m.hash == winner.hash for m in made):
        return []
    why = f"`{short_name(nest.name)}` was tuned for {winner.block.machine_class}, this machine is {here}"
    return [_about(report, nest.regions[0], "MDH504", why, "`mdh-lift tune` adds an entry for this machine")]


def _here() -> str:
    """What fingerprints made on this machine begin with."""
    from lowering.machine import this_machine
    from tuning.fingerprint import machine_class

    return machine_class(this_machine().cores)


def _about(report: FileReport, region: Region, code: str, headline: str, advice: str) -> Finding:
    d = Diagnostic(code, headline, report.source.path, region.marker, help=advice)
    return Finding(d, report.source)


def unspliced(report: FileReport, options: Options) -> set[str]:
    """Names of nests that are not spliced, though the lock has an entry of them for this machine that is
    reliably faster than the original."""
    bare = [n for n in report.nests if not n.regions and n.lifted is not None and n.replaceable]
    try:
        lock = locks.read(options.lock_path)
    except locks.LockError:
        return set()
    found = set()
    text = SourceFile(report.source.path, report.bare.data)
    known: macros.Definitions | None = None
    for nest in bare:
        if nest.status == "refused" or nest.lifted is None:
            continue
        for block in _blocks(report, nest, lock, options):
            low = (block.content.get("speedup") or {}).get("low", 0)
            if low <= options.config.tune.min_speedup or block.machine_class != _here():
                continue
            if options.target not in ("", block.target):
                continue
            known = macros.definitions(text, report.command) if known is None else known
            if block.content.get("source_hash") == source_hash(text.data, nest.lifted.nest, known):
                found.add(nest.name)
    return found
