"""What the lock file says about nests, and the splice that follows from it; nothing is compiled or run.

A splice in an editor puts in place what ``mdh-lift tune`` compiled, ran, compared and measured on this
machine, as ``mdh-lift splice`` does: the database must hold it (``mdh_lift.verified``).  Anything else is for
the command.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from frontend_c.preprocess import analysis_compiler
from mdh_core.diagnostics import refuse
from mdh_core.source import SourceFile
from mdh_lift import macros
from mdh_lift.lsp.values import Tuned
from mdh_lift.pipeline import (
    FileReport,
    NestReport,
    Options,
    short_name,
    source_hash,
    splice_file,
    style_of,
    target_of,
)
from tuning import lock as locks


def tuned(report: FileReport, options: Options) -> dict[str, tuple[Tuned, ...]]:
    """The entries of the lock file for the nests of a file, by name (function::label)."""
    try:
        nests = locks.read(options.lock_path)["nests"]
    except (locks.LockError, KeyError):
        return {}  # `check` tells what is wrong with it
    path = os.path.relpath(report.source.path, options.root)
    found: dict[str, tuple[Tuned, ...]] = {}
    known: macros.Definitions | None = None
    for nest in report.nests:
        name = short_name(nest.name)
        machines = nests.get(f"{path}::{name}")
        if not isinstance(machines, Mapping) or nest.lifted is None:
            continue
        if known is None:
            known = macros.definitions(SourceFile(path, report.bare.data), report.command)
        current = source_hash(report.bare.data, nest.lifted.nest, known)
        found[name] = tuple(
            _entry(str(machine), str(size_class), block, current)
            for machine, blocks in sorted(machines.items()) if isinstance(blocks, Mapping)
            for size_class, block in sorted(blocks.items()) if isinstance(block, Mapping)
        )  # fmt: skip
    return found


def _entry(machine: str, size_class: str, block: Mapping[str, Any], current: str) -> Tuned:
    ratio = block.get("speedup")
    numbers = ratio if isinstance(ratio, Mapping) else {}
    median, low, high = (_number(numbers.get(k)) for k in ("median", "low", "high"))
    return Tuned(size_class, machine, median, low, high, block.get("source_hash") != current)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def spliced(report: FileReport, name: str, options: Options) -> bytes:
    """The file with what is recorded as verified for a nest in place, as ``mdh-lift splice`` would write it.

    Raises ``Refusal``: MDH822 where the command has to do it, what ``mdh_lift.verified`` raises where nothing
    is recorded, and what ``splice_file`` raises.
    """
    from mdh_lift import several  # not needed until somebody splices

    nest = _nest(report, name)
    if not nest.replaceable:
        raise _for_the_command(nest, "a directive around it forbids it (MDH414)")
    if target_of(nest, options.target) != "openmp":
        raise _for_the_command(nest, "generated files for GPUs stand beside the source")
    if style_of(nest, options.style, options.config.splice.style) == "outline":
        raise _for_the_command(nest, "its kernel stands in a file beside the source")
    command = report.command
    if command.compiler and shutil.which(command.compiler) != analysis_compiler(command):
        raise _for_the_command(nest, f"`{command.compiler}` does not look like a compiler")
    known = several.improve(report, nest, replace(options, recorded=True), "splice", lambda *_: None)
    if known.part is None:
        reasons = [f.diagnostic.message for f in known.findings]
        raise _for_the_command(nest, reasons[-1] if reasons else "no version of it was verified")
    change = splice_file(report, [known.part], options.force)
    if known.apart or change.beside or change.removed or change.new is None:
        raise _for_the_command(nest, "files beside the source change, too")
    return change.new


def _nest(report: FileReport, name: str) -> NestReport:
    found = next((n for n in report.nests if short_name(n.name) == name), None)
    if found is None or found.lifted is None:
        raise refuse("MDH822", f"the file has no nest `{name}` that lifts")
    return found


def _for_the_command(nest: NestReport, why: str) -> Exception:
    return refuse("MDH822", f"`{short_name(nest.name)}` is not spliced here: {why}",
                  help=f"`mdh-lift -w {nest.name}` tunes, verifies and splices it")  # fmt: skip
