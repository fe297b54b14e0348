"""Improvements that nothing is run for, here and as ``python -m tests.port_fake LOG arguments of mdh-lift...``.

Each nest that is made is a line of LOG.  In the environment: ``FAKE_SECONDS`` that each takes, and ``KILL_AT``, where
the process dies (before-write, after-write).  The module that makes improvements is never imported, as it is slow to.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

from mdh_core.diagnostics import Diagnostic, refuse
from mdh_lift import pipeline
from mdh_lift.findings import Finding
from tuning.lock import Entry
from tuning.measure import Measurement, ratio_of
from tuning.runner import Outcome


@dataclass(frozen=True)
class Improvement:
    """What ``port`` looks at of ``mdh_lift.improve.Improvement``."""

    name: str
    expression: str
    target: str = "openmp"
    sizes: str = "n=8"
    verification: object = None
    part: object = None
    apart: tuple[object, ...] = ()
    entries: tuple[Entry, ...] = ()
    findings: tuple[Finding, ...] = ()
    measurement: object = None


def fake(
    log: str, behaviour: Mapping[str, str] | None = None, seconds: float = 0.0, factor: float = 1.0
) -> Callable[..., Improvement]:
    """``improve`` for functions that behave: fast, slow, crash, hang, broken (does not compile), bug, wrong,
    apart (fast, with a file beside the source)."""

    def improve(report, nest, options, stage, tell):
        short = pipeline.short_name(nest.name)
        how = (behaviour or {}).get(short.partition("::")[0], "fast")
        with open(log, "a") as out:
            out.write(f"{os.path.basename(report.source.path)}::{short}\n")
        time.sleep(seconds)
        if how == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hang":
            time.sleep(600)
        if how == "broken":
            raise refuse("MDH802", "the unmodified file does not compile")
        if how == "bug":
            raise RuntimeError("something of ours")
        ratio = {"slow": 0.5}.get(how, 4.0) * factor
        pairs = tuple((0.008 * (1 + k / 1000), 0.008 / ratio) for k in range(15))
        taken = Measurement(Outcome("ok"), pairs, ratio_of(pairs))
        stem = short.replace("::", "_") + "_mdh"
        kernel = f"static int {stem}(void)\n{{\n    return 0;\n}}"
        part = pipeline.splice_part(report, nest.lifted.nest, kernel, f"{stem}()")
        entry = Entry(short, "machine", "fixed", part.source, {"point": {}}, "0" * 16, taken.ratio)
        code = {"slow": "MDH603", "wrong": "MDH701"}.get(how)
        found = (Finding(Diagnostic(code, "as asked for")),) if code else ()
        return Improvement(
            nest.name, "md_hom(...)", verification=SimpleNamespace(cases=24), findings=found, measurement=taken,
            part=None if code else part, entries=() if code else (entry,),
            apart=(object(),) if how == "apart" else (),
        )  # fmt: skip

    return improve


def _die(when: str) -> None:
    """A write of a source kills the whole run."""
    from mdh_lift import journal

    make = journal.make

    def killed(change):
        if when == "after-write":
            make(change)
        os.kill(os.getpid(), signal.SIGKILL)

    journal.make = killed


if __name__ == "__main__":
    stub = ModuleType("mdh_lift.several")
    stub.Improvement = Improvement
    stub.improve = fake(sys.argv[1], seconds=float(os.environ.get("FAKE_SECONDS", "0")))
    import mdh_lift

    for name in ("several", "improve"):
        sys.modules[f"mdh_lift.{name}"] = stub
        setattr(mdh_lift, name, stub)
    if os.environ.get("KILL_AT"):
        _die(os.environ["KILL_AT"])
    from mdh_lift.cli import cli

    cli.main(sys.argv[2:], prog_name="mdh-lift")
