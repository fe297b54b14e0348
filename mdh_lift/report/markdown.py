"""The report as Markdown: what a comment on a change or a build log can show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mdh_lift.report.data import Nest, Report, readable
from mdh_lift.report.page import number, plain, roof, sizes, three


def markdown(report: Report) -> str:
    return readable("\n".join(_lines(report))) + "\n"


def _lines(report: Report) -> Iterator[str]:
    s = report.summary
    yield f"# {_text(report.title)}"
    yield ""
    states = ", ".join(f"{n} {state}" for state, n in s.states.items())
    yield f"{len(report.nests)} nests in {s.files} files" + (f": {states}." if states else ".")
    if s.speedup is not None:
        r = s.speedup
        yield ""
        yield (
            f"Speedup, geometric mean of {s.timed}: **{three(r.median)}×**"
            f" ({three(r.low)} to {three(r.high)})."
        )
    yield ""
    rows = []
    for n in report.nests:
        best = n.headline
        ratio = best.speedup if best is not None else None
        told = "" if ratio is None else f"{three(ratio.median)}× ({three(ratio.low)} to {three(ratio.high)})"
        rows.append((n.name, n.state, told, n.refused_by))
    yield from _table(("Nest", "State", "Speedup", "Refused by"), rows)
    if s.refusals:
        yield ""
        yield from _table(("Code", "Reason", "Nests"), [(r.code, r.title, r.count) for r in s.refusals])
    for n in report.nests:
        yield from _nest(n, report)
    yield ""
    yield "## Environment"
    yield ""
    yield from _table(("What", "Value"), report.environment)


def _nest(n: Nest, report: Report) -> Iterator[str]:
    yield ""
    yield f"## {_text(n.name)}"
    yield ""
    yield f"Line {n.line}, {n.state}."
    for d in n.diagnostics:
        if d["severity"] != "info":
            yield f"- {d['code']}: {_text(str(d['message']))}"
    if n.steps:
        yield ""
        yield from _fenced(plain(n))
    if n.counts is not None:
        yield ""
        formula = n.counts["formula"]
        counted = (
            f"`{formula}` = {number(n.counts['iterations'])}" if formula else number(n.counts["iterations"])
        )
        yield f"Iterations at {_text(sizes(n))}: {counted}. {roof(n, report.ceilings)}".rstrip()
    for search in n.searches:
        yield ""
        failed = sum(r.count for r in search.rejected)
        yield (
            f"Search at {_text(search.sizes)}: {len(search.trials)} evaluations ({search.strategy}),"
            f" {failed} not chosen for a fault or as slow."
        )
    for result in n.results:
        if result.speedup is not None:
            r = result.speedup
            yield ""
            yield (
                f"Chosen for `{result.fingerprint}` at {_text(result.sizes)}: {three(r.median)}×"
                f" ({three(r.low)} to {three(r.high)})."
            )


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + " --- |" * len(heads)
    for row in rows:
        yield "| " + " | ".join(_text(str(c)) for c in row) + " |"


def _text(value: str) -> str:
    """On one line, with nothing that Markdown or HTML would take for markup."""
    value = " ".join(value.split())
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", value).replace("&", "&amp;")


def _fenced(text: str) -> Iterator[str]:
    fence = "`" * max(3, 1 + max((len(m) for m in re.findall("`+", text)), default=0))
    yield fence
    yield text
    yield fence
