"""What an editor offers for an analysis: lenses, symbols, folds and actions; neither protocol nor child.

lenses(nest)                     [("tuned 3.2 × (N=1024)", "show"), ("splice", "splice")]
actions_of(analysis, text, a, b) what may be done about the bytes [a, b]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mdh_lift.lsp.positions import UTF8, Text
from mdh_lift.lsp.values import Analysis, Edit, Finding, Nest, Place, Tuned
from mdh_lift.suppressions import may_be_suppressed

QUICK_FIX, REWRITE = "quickfix", "refactor.rewrite"


@dataclass(frozen=True, slots=True)
class Action:
    """``task``: "" (the edits are here), "explain"; computed when chosen: "splice", "revert", "annotate"."""

    title: str
    kind: str
    edits: tuple[Edit, ...] = ()
    task: str = ""
    nest: str = ""
    code: str = ""  # of the finding that it is about
    preferred: bool = False


def lenses(nest: Nest) -> Iterator[tuple[str, str]]:
    """Titles over a nest, and what each does: "show", "splice" or "revert"."""
    current = [t for t in nest.tuned if not t.stale]
    best = max(current, key=lambda t: t.median, default=None)
    faster = f", {_ratio(best)}" if best is not None else ""
    if nest.splice == "fresh":
        yield f"spliced{faster}", "show"
        yield "revert", "revert"
    elif nest.splice == "stale":
        yield "splice is stale: the nest changed", "show"
        if current:
            yield "splice again", "splice"
        yield "revert", "revert"
    elif nest.splice == "edited":
        yield "generated code was edited", "show"
        yield "revert", "revert"
    elif best is not None:
        yield f"tuned{faster.removeprefix(',')}", "show"
        if nest.replaceable:
            yield "splice", "splice"
    elif nest.tuned:
        yield "tuned before the nest changed", "show"
    else:
        said = nest.summary if nest.summary.startswith(nest.status) else f"{nest.status}: {nest.summary}"
        yield (nest.summary if nest.status == "refused" else said), "show"


def _ratio(t: Tuned) -> str:
    where = "" if t.size_class in ("", "fixed") else f" ({t.size_class})"
    return f"{t.median:.3g} ×{where}" if t.median else f"not measured{where}"


def symbols(analysis: Analysis) -> Iterator[tuple[str, str, Place, Place]]:
    """Name, detail, whole range and head of each nest."""
    for n in analysis.nests:
        start, end = min(n.head.start, n.body.start), max(n.head.end, n.body.end)
        yield n.name, n.summary, Place(start, end), n.head


def folds(analysis: Analysis) -> Iterator[tuple[Place, str]]:
    """Generated regions, and the originals behind them."""
    for n in analysis.nests:
        for r in n.regions:
            yield Place(r.place.start, max(r.place.start, r.place.end - 1)), f"generated {r.kind} of {n.name}"
        if n.regions and n.body.end > n.body.start:
            yield n.body, f"original of {n.name}"


def actions_of(analysis: Analysis, text: Text, first: int, last: int) -> Iterator[Action]:
    """What may be done about a selection, fixes first."""
    told = [f for f in analysis.findings if f.place.start <= last and first <= f.place.end]
    for f in told:
        for fix in f.fixes:
            only = fix.sure and len(f.fixes) == 1
            yield Action(fix.title, QUICK_FIX, fix.edits, code=f.code, preferred=only)
    for nest in analysis.nests:
        whole = Place(min(nest.head.start, nest.body.start), max(nest.head.end, nest.body.end))
        if not (whole.start <= last and first <= whole.end):
            continue
        for change in nest.changes:
            yield Action(change.title, REWRITE, change.edits)
        if nest.splice != "fresh" and nest.replaceable and any(not t.stale for t in nest.tuned):
            yield Action(f"Splice the tuned version of {nest.name}", REWRITE, task="splice", nest=nest.name)
        if nest.regions:
            yield Action(f"Revert {nest.name} to its original", REWRITE, task="revert", nest=nest.name)
    line = text.position(first, UTF8)[0]
    if _LOOP.match(text.line(line)) and not any(holds(n, first) for n in analysis.nests):
        yield Action("Put `#pragma mdh` above this loop", REWRITE, task="annotate", nest=str(line + 1))
    for f in {f.code: f for f in told if may_be_suppressed(f.code)}.values():
        yield Action(f"Ignore {f.code} here", QUICK_FIX, (_ignoring(analysis, text, f),), code=f.code)
    for code in dict.fromkeys(f.code for f in told):
        yield Action(f"Explain {code}", QUICK_FIX, task="explain", code=code)


_LOOP = re.compile(r"\s*for\b")


def holds(nest: Nest, offset: int) -> bool:
    return nest.head.start <= offset <= nest.head.end or nest.body.start <= offset < nest.body.end


def _ignoring(analysis: Analysis, text: Text, f: Finding) -> Edit:
    """A comment on a line of its own, above the finding or above the directive that it is in."""
    nest = next((n for n in analysis.nests if n.name == f.nest and holds(n, f.place.start)), None)
    line = text.position(nest.head.start if nest else f.place.start, UTF8)[0]
    start = text.offset((line, 0), UTF8)
    indent = _INDENT.match(text.line(line))
    sign = "#" if f.nest and text.line(line).lstrip().startswith("@") else "//"
    comment = f"{indent[0] if indent else ''}{sign} mdh-lift: ignore[{f.code}] say why\n"
    return Edit(Place(start, start), comment)


_INDENT = re.compile(r"[ \t]*")
