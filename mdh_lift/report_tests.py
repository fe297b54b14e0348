"""Findings as JUnit XML: what was looked at are test cases, grouped by file.

check           a case per nest, and one per file for what belongs to no nest
verify, bench   a case per nest and target; a nest that was refused is skipped, with its code

A case fails by a finding that the exit status counts, and is an error by one of status 3 and above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape, quoteattr

from mdh_lift import places
from mdh_lift.findings import Finding, full_message
from mdh_lift.report_cases import Case


def junit(findings: Sequence[Finding], cases: Sequence[Case], counts: Callable[[Finding], int]) -> str:
    """One suite per file; ``counts``: the exit status that a finding asks for."""
    every = list(cases)
    nests = {c.name for c in every}
    # what belongs to no nest that is a case is told of its file
    loose = [f for f in findings if f.nest not in nests]
    with_files = {c.name for c in every if c.name == c.file}
    every += [Case(file, file) for file in sorted({f.file for f in loose} - with_files)]
    suites = []
    totals = [0, 0, 0, 0]
    for file in sorted({c.file for c in every}):
        rows, numbers = [], [0, 0, 0, 0]
        for case in (c for c in every if c.file == file):
            own = [f for f in findings if f.nest == case.name]
            if case.name == case.file:
                own += [f for f in loose if f.file == case.file]
            body, kind = _body(case, own, counts)
            numbers[0] += 1
            numbers[kind] += kind > 0
            rows.append(_case(case, body))
        totals = [a + b for a, b in zip(totals, numbers, strict=True)]
        name = quoteattr(_xml(places.relative(file) if file else "mdh-lift"))
        suites.append(f"  <testsuite name={name} {_head(numbers)}>\n{''.join(rows)}  </testsuite>\n")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="mdh-lift" {_head(totals)}>\n{"".join(suites)}</testsuites>\n'
    )


def _head(numbers: Sequence[int]) -> str:
    tests, failures, errors, skipped = numbers
    return f'tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}"'


def _body(case: Case, findings: Sequence[Finding], counts: Callable[[Finding], int]) -> tuple[str, int]:
    """What stands in the case, and 0 if it passed, 1 if it failed, 2 for an error, 3 if it was skipped."""
    failing = [f for f in findings if counts(f)]
    if case.skipped and all(f.diagnostic.exit_status < 2 for f in failing):
        return f"      <skipped message={quoteattr(_xml(case.skipped))}/>\n", 3
    error = any(counts(f) > 2 for f in failing)
    tag = "error" if error else "failure"
    lines = [
        f"      <{tag} type={quoteattr(f.diagnostic.code)} message={quoteattr(_xml(f.diagnostic.message))}>"
        f"{escape(_xml(_told(f)))}</{tag}>\n"
        for f in failing
    ]
    others = [f for f in findings if not counts(f) and f.diagnostic.severity != "info"]
    if others:
        lines.append(f"      <system-out>{escape(_xml(''.join(_told(f) for f in others)))}</system-out>\n")
    return "".join(lines), (2 if error else 1) if failing else 0


def _told(f: Finding) -> str:
    line, column = f.start
    return f"{f.file}:{line}:{column}: {f.diagnostic.severity}[{f.diagnostic.code}]: {full_message(f)}\n"


def _case(case: Case, body: str) -> str:
    where = places.relative(case.file) if case.file else "mdh-lift"
    name = case.name
    if name != case.file:
        name = "::".join(name.rsplit("::", 2)[1:])
    elif not name:
        name = "run"
    if case.target:
        name += f" [{case.target}]"
    head = f"classname={quoteattr(_xml(where))} name={quoteattr(_xml(name))}"
    head += f' file={quoteattr(_xml(where))} time="{case.seconds:.3f}"'
    return f"    <testcase {head}>\n{body}    </testcase>\n" if body else f"    <testcase {head}/>\n"


def _xml(value: str) -> str:
    """Without the control characters that XML 1.0 cannot hold, and without broken bytes."""
    text = places.readable(value)
    return "".join(c if c in "\t\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
