"""What commands that measure something of every case have in common: cases, a line for each, a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.cases import CASES, GROUPS, Case
from benchmarks.compiled import Missing

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Found = TypeVar("Found", bound=DataclassInstance)


def add_arguments(parser: argparse.ArgumentParser, usual: str) -> None:
    """Which cases, and a file; ``usual``: what it is without."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"default: {usual}")
    parser.add_argument("--group", action="append", default=[], choices=GROUPS, help="all cases of a group")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="write all figures")


def chosen(
    parser: argparse.ArgumentParser, given: argparse.Namespace, usual: Collection[str] = ()
) -> list[Case]:
    """The cases, in their own order; an unknown name ends the command.  ``usual``: without any, else all."""
    if unknown := set(given.cases) - {c.name for c in CASES}:
        parser.error(f"unknown case {', '.join(sorted(unknown))}; python -m benchmarks --list shows all")
    if not given.cases and not given.group:
        return [c for c in CASES if c.name in usual or not usual]
    return [c for c in CASES if c.name in given.cases or c.group in given.group]


def told(
    cases: Sequence[Case],
    measure: Callable[[Case], Found],
    table: Callable[[Sequence[Found]], str],
    file: str | None,
) -> None:
    """A line for each case as soon as it is there, the table at the end; why one is missing."""
    found: list[Found] = []
    for case in cases:
        try:
            found.append(measure(case))
        except Missing as missing:
            print(f"{case.name}: {missing}", file=sys.stderr)
            continue
        print(table(found[-1:]).splitlines()[1], file=sys.stderr, flush=True)
    print(table(found))
    if file:
        Path(file).write_text(json.dumps([asdict(f) for f in found], indent=2) + "\n")
