"""The measured limits of this machine, for ``doctor`` and for rooflines: measured once, kept, shown."""

from __future__ import annotations

import click

from frontend_c.preprocess import find_compiler
from lowering.machine import this_machine
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_lift.findings import Finding
from mdh_lift.session import Session
from tuning import ceilings
from tuning.ceilings import Ceilings, CeilingsError
from tuning.toolchain import Toolchain


def known(session: Session) -> Ceilings | None:
    """What was measured on this machine; a file that cannot be read is a finding (MDH823)."""
    try:
        stored = ceilings.load()
        return ceilings.matching(stored, _key()) if stored else None
    except (CeilingsError, Refusal) as error:
        session.findings.append(Finding(Diagnostic("MDH823", str(error))))
        return None


def measured(session: Session) -> Ceilings | None:
    """Measured now (some seconds with all cores busy) and kept; a failure is a finding (MDH823)."""
    try:
        compiler = Toolchain((find_compiler(),), ())
        found = ceilings.measure(compiler, this_machine().cores, lambda what: _tell(session, what))
        ceilings.save(found)
    except (CeilingsError, Refusal) as error:
        session.findings.append(Finding(Diagnostic("MDH823", str(error))))
        return None
    return found


def _key() -> str:
    return ceilings.machine_key((find_compiler(),), this_machine().cores)


def _tell(session: Session, what: str) -> None:
    if not session.quiet:
        click.echo(f"measuring {what}", err=True)


def rows(found: Ceilings | None) -> list[tuple[str, str, bool]]:
    """Label, value and whether it is there, as ``doctor`` prints them."""
    if found is None:
        return [("limits", "not measured: mdh-lift doctor --bench", False)]
    return [(label, value, True) for label, value in found.rows()]
