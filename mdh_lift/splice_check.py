"""``splice --check``: what a splice would change, without making it; nothing is compiled or run.

A nest would change if what is spliced is stale, edited or not what the lock file says, or if the lock file
has an entry for this machine that is reliably faster than the original and nothing is spliced.
"""

from __future__ import annotations

from collections.abc import Sequence

from mdh_lift.files import is_python
from mdh_lift.lock_check import unspliced, with_lock
from mdh_lift.pipeline import NestReport
from mdh_lift.session import Session
from mdh_lift.verbs import content_of, reports_of

_WHY = {
    "MDH501": "stale", "MDH502": "edited", "MDH503": "of another version", "MDH505": "not in the lock file",
    "MDH506": "not what the lock file says",
}  # fmt: skip


def splice_check(session: Session, paths: Sequence[str], target: str | None = None) -> int:
    """One line for each nest that would change; exit status 1 if there is one."""
    nests: list[NestReport] = []
    for found, report, own in reports_of(session, paths, only_c=True, then=with_lock, target=target):
        if is_python(found.path):
            continue
        ready = unspliced(report, session.options(found.path, target=target))
        for nest in own:
            why = [_WHY[f.diagnostic.code] for f in nest.findings if f.diagnostic.code in _WHY]
            if nest.name in ready:
                why.append("in the lock file, not in the source")
            if why:
                session.result(f"would change {nest.name}: {', '.join(dict.fromkeys(why))}\n")
                session.statuses.append(1)
                session.noted["would change"] += 1
        nests += own
    # what does not lift is no matter here
    session.findings = [
        f for f in session.findings if f.diagnostic.exit_status >= 2 or f.diagnostic.code in _WHY
    ]
    return session.finish(content_of(session, nests))
