"""The report as one self-contained HTML page.

    Report  ->  bytes of a page that opens from a file, runs three known scripts, and can load nothing

The policy of the page forbids every request and names its scripts by their hashes.  Text from sources,
file names and compilers is escaped by the template; what is markup already comes from printers of ours
(``mdh_core.mathml``, ``report.svg``).  Data in the page are compressed, in letters and digits.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any

from emit.frames import page as template
from mdh_lift.report import plots
from mdh_lift.report.data import Nest, Report, Result, Search, Text, finite, readable
from mdh_lift.report.dense import dense
from mdh_lift.report.packing import compressed, packed
from tuning.importance import FEWEST, PER_VALUE, Importance

OPEN = 8  # nests at most that are shown unfolded
_LIBRARIES = ("vega.min", "vega-lite.min", "vega-interpreter")
VEGA = "6.4.0"
_RESULTS = 800_000  # characters of nests in a page; results beyond are cut to equal shares
_LEAST_LINES = 12
_INLINE = 150_000  # characters of nests that are in the page as they are; those beyond are compressed


def html(report: Report) -> bytes:
    """The page, UTF-8."""
    shown = plots.plots(report)
    drawn = {p["id"] for p in shown["plots"]}
    script, css = _asset("page.js"), _asset("page.css")
    libraries = {name: _library(name) for name in _LIBRARIES} if drawn else {}
    nests = [_nest(k, n, report, drawn) for k, n in enumerate(_within_budget(report.nests))]
    bodies = [_body(n) for n in nests]
    inline = [whole <= _INLINE for whole in itertools.accumulate(map(len, bodies))]
    made: str = _template("page.html.j2").render(
        report=report,
        policy=_policy([script, *libraries.values()]),
        css=_Markup(css),
        script=_Markup(script),
        plots=packed(finite(shown)),
        data=packed(report.as_json()),
        t4=packed(finite(_rounded(report.t4))) if report.t4 is not None else "",
        libraries=[(name, compressed(text.encode())) for name, text in libraries.items()],
        vega=VEGA,
        open=len(report.nests) <= OPEN,
        nests=[
            n | {"body": _Markup(body) if here else None}
            for n, body, here in zip(nests, bodies, inline, strict=True)
        ],
        packed="" if all(inline) else packed(
            [None if here else _body(n, compressed=True) for n, here in zip(nests, inline, strict=True)]
        ),
        has_speedups="plot-speedup" in drawn,
        has_roofline="plot-roofline" in drawn,
        speedups=list(_speedups(report)),
        roofs=list(_roofs(report)),
        board=list(_board(report.board)),
        states=[(s, _STATES[s]) for s in report.summary.states],
        refusals=[(r.code, r.title, r.count) for r in report.summary.refusals],
        notes=[_message(n) for n in report.notes],
    )
    return readable(dense(made)).encode()


def _body(n: Mapping[str, Any], *, compressed: bool = False) -> str:
    return dense(_template("nest.html.j2").render(n=n, compressed=compressed))


def _rounded(value: Any) -> Any:
    """Times to five digits: what a clock is good for."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list | tuple) else value


class _Markup(str):
    """Text that is markup already: the template engine leaves it alone."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@functools.cache
def _template(name: str) -> Any:
    filters: dict[str, Callable[..., str]] = {"three": three, "line_numbers": _line_numbers, "bare": _bare}
    return template("mdh_lift.report", name, filters)


def _bare(text: str) -> _Markup:
    """Escaped where it is text of an element: quotes need none there."""
    return _Markup(escape(str(text), quote=False))


def _asset(name: str) -> str:
    return (files("mdh_lift.report") / "templates" / name).read_text("utf-8")


_IMPORT = re.compile(r"^import \{([^}]*)\} from 'vega-util';$", re.MULTILINE)
_EXPORT = re.compile(r"^export \{ expression as expressionInterpreter \};$", re.MULTILINE)


def _library(name: str) -> str:
    """A script of the page; the interpreter is a module, whose two links to others become assignments."""
    text: str = (files("mdh_lift.report") / "vendor" / f"{name}.js").read_text("utf-8")
    if name != "vega-interpreter":
        return text
    text, imports = _IMPORT.subn(r"const {\1} = vega;", text)
    text, exports = _EXPORT.subn("globalThis.vegaInterpreter = expression;", text)
    assert imports == exports == 1
    return f"(() => {{\n{text}\n}})();"


def _policy(scripts: Sequence[str]) -> str:
    """No request of any kind; scripts by their hashes.  Styles are inline: Vega sets some on its elements."""

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return "; ".join([
        "default-src 'none'",
        f"script-src {' '.join(map(hashed, scripts))}",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
    ])  # fmt: skip


def three(v: float) -> str:
    """Three significant digits."""
    return f"{v:.3g}" if abs(v) < 1000 else f"{v:.0f}"


def _line_numbers(text: Text) -> str:
    return "\n".join(str(text.line + k) for k in range(text.lines))


def _within_budget(nests: Sequence[Nest]) -> list[Nest]:
    """Long results are cut where all together would make the page too large."""
    others = sum(_weight(n) for n in nests)
    budget = max(_RESULTS - others, 0)
    total = sum(len(n.result.text) for n in nests if n.result is not None)
    if total <= budget:
        return list(nests)
    share = budget // sum(n.result is not None for n in nests)
    return [_shortened(n, share) for n in nests]


def _weight(n: Nest) -> int:
    """Characters that a nest takes apart from its result, about."""
    drawing = len(n.space.svg) + len(n.space.text) if n.space is not None else 0
    trials = sum(len(s.trials) for s in n.searches)
    return 3_000 + drawing + sum(len(s.mathml) + 2 * len(s.text) for s in n.steps) + 150 * trials


def _shortened(n: Nest, share: int) -> Nest:
    if n.result is None or len(n.result.text) <= share:
        return n
    lines = n.result.text.split("\n")
    kept = max(_LEAST_LINES, n.result.text[:share].count("\n"))
    left_out = n.result.left_out + max(0, len(lines) - kept)
    return replace(n, result=replace(n.result, text="\n".join(lines[:kept]), left_out=left_out))


# --------------------------------------------------------------------------- rows


_STATES = {
    "spliced": "the result is in the file, and fresh",
    "tuned": "there is a result, made from the source as it is, in the lock file or the database",
    "lifted": "it has an MDH expression, and no result yet",
    "partial": "a part of it has an MDH expression",
    "refused": "it has none",
    "stale": "what is in the file was made from another source, or was edited",
}


def _speedups(report: Report) -> Iterator[tuple[str, ...]]:
    for n in report.nests:
        best = n.headline
        if best is not None and best.speedup is not None:
            r = best.speedup
            yield n.name, best.sizes, three(r.median), three(r.low), three(r.high)


def _roofs(report: Report) -> Iterator[tuple[str, ...]]:
    for n in report.nests:
        if n.roof is not None and report.ceilings is not None:
            limit = plots.limit(n.roof, report.ceilings)
            times = (_giga(v) for v in (limit, n.roof.achieved, n.roof.before))
            yield (n.name, three(n.roof.intensity), *times)


def _giga(v: float | None) -> str:
    return "–" if v is None else three(v / 1e9)


def _board(board: Mapping[str, Any] | None) -> Iterator[tuple[str, ...]]:
    for row in board["nests"] if board is not None else ():
        ratio = row.get("speedup")
        numbers: tuple[str, ...] = ("–",) * 3
        if isinstance(ratio, Mapping) and all(isinstance(ratio.get(k), int | float) for k in _RATIO):
            numbers = tuple(three(ratio[k]) for k in _RATIO)
        why = " ".join(str(row[k]) for k in ("code", "reason") if row.get(k))
        yield (str(row["name"]), str(row.get("result", "")), *numbers, why)


_RATIO = ("median", "low", "high")


def _message(d: Mapping[str, Any]) -> str:
    return f"{d['code']}: {d['message']}"


def _nest(k: int, n: Nest, report: Report, drawn: set[str]) -> dict[str, Any]:
    return {
        "index": k,
        "nest": n,
        "messages": [_message(d) for d in n.diagnostics if d["severity"] != "info" or n.state == "refused"],
        "steps": [
            {"kind": s.kind, "depth": min(s.depth, 5), "text": s.text, "math": _Markup(s.mathml)}
            for s in n.steps
        ],
        "plain": plain(n),
        "space": _space(n),
        "sizes": sizes(n),
        "counts": list(_counts(n)) if n.counts is not None else None,
        "buffers": list(_buffers(n)),
        "inexact": "; ".join(n.counts["notes"]) if n.counts is not None else "",
        "roof": roof(n, report.ceilings),
        "roofline": f"plot-{k}-roofline" in drawn,
        "searches": [_search(s) for s in n.searches],
        "results": [_result(r) for r in n.results],
    }


def plain(n: Nest) -> str:
    """The lifted nest as text, indented below host loops."""
    out = []
    for s in n.steps:
        lead = "  " * s.depth
        text = f"sequential\n{s.text}" if s.kind == "sequential" else s.text
        out += [lead + line for line in text.rstrip("\n").split("\n")]
    return "\n".join(out)


def sizes(n: Nest) -> str:
    return ", ".join(f"{name} = {v}" for name, v in n.sizes.items()) or "its fixed sizes"


def _space(n: Nest) -> dict[str, Any] | None:
    if n.space is None:
        return None
    s = n.space
    legends = (
        [{"mark": _Markup(x.mark), "text": x.text} for x in part] for part in (s.statements, s.dependences)
    )
    statements, dependences = legends
    return {
        "svg": _Markup(s.svg), "text": s.text, "cut": s.cut,
        "statements": statements, "dependences": dependences,
    }  # fmt: skip


def number(v: float) -> str:
    """An integer with thin spaces between thousands."""
    return f"{v:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _counts(n: Nest) -> Iterator[tuple[str, str]]:
    c = n.counts
    assert c is not None
    formula = f" = {c['formula']}" if c["formula"] and not c["formula"].isdigit() else ""
    yield f"iterations{formula}", number(c["iterations"])
    for op in c["operations"]:
        yield f"{op['kind']}, {op['type']}", number(op["count"])
    yield "floating-point operations", number(c["flops"])
    yield "bytes between memory and a cache that holds everything", number(c["bytes"])
    if c["intensity"] is not None:
        yield "floating-point operations per byte", three(c["intensity"])


def _buffers(n: Nest) -> Iterator[tuple[str, ...]]:
    for b in n.counts["buffers"] if n.counts is not None else ():
        about = "" if b["exact"] else "at most "
        yield (b["name"], b["type"], about + number(b["read"]), number(b["written"]), number(b["moved"]))


def roof(n: Nest, ceilings: Mapping[str, Any] | None) -> str:
    """The roofline in words; empty where the nest has no floating-point operations."""
    if n.roof is None:
        return ""
    out = f"{three(n.roof.intensity)} floating-point operations per byte."
    if ceilings is not None:
        limit = plots.limit(n.roof, ceilings)
        out += f" From memory at most {_giga(limit)} GFLOP/s on this machine."
        if n.roof.achieved is not None:
            share = n.roof.achieved / limit
            out += f" The result runs at {_giga(n.roof.achieved)} GFLOP/s, {100 * share:.0f} % of that"
            out += (
                ": data stay in caches, or the machine was busier when it was measured" if share > 1 else ""
            )
            out += "."
    return out


def _search(s: Search) -> dict[str, Any]:
    improved = [t for t, before in zip(s.trials, (None, *s.trials), strict=False)
                if t.best is not None and (before is None or before.best != t.best)]  # fmt: skip
    words = [
        f"{len(s.trials)} evaluation{'' if len(s.trials) == 1 else 's'}",
        f"strategy {s.strategy}",
        f"budget {s.budget}",
        f"seed {s.seed}",
    ]
    end = s.stopped if s.finished else "it did not end"
    return {
        "search": s,
        "words": ", ".join(words) + (f"; {end}" if end else "") + ".",
        "key": _key(s),
        "improvements": [(t.number + 1, f"{t.offset:.1f}", _ms(t.best)) for t in improved],
        "rejected": [(r.cause.replace("_", " "), r.count, r.example) for r in s.rejected],
        "importance": _importance(s.importance),
    }


_SMALL = 0.01  # share below which a parameter is only named


def _importance(found: Importance) -> dict[str, Any]:
    """Rows of the parameters that matter; the others in words."""
    rows = [(x.parameter, x.values, f"{100 * x.share:.0f} %" if x.share is not None else "–")
            for x in found.shares if x.share is None or x.share >= _SMALL]  # fmt: skip
    small = [x.parameter for x in found.shares if x.share is not None and x.share < _SMALL]
    words = [f"From {found.evaluations} configurations with a time."]
    if small:
        words.append(f"Below 1 %: {', '.join(small)}.")
    if any(x.share is None for x in found.shares):
        words.append(f"–: fewer than {FEWEST} of them, or fewer than {PER_VALUE} for each value.")
    return {"rows": rows, "words": " ".join(words)}


def _key(s: Search) -> str:
    out = "Points are configurations that ran"
    out += ", ticks at the foot those that did not" if any(t.seconds is None for t in s.trials) else ""
    return out + (", the dashed line is the original." if s.original else ".")


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else three(seconds * 1e3)


_WORDS = {
    "cases": "runs that agreed with the original",
    "kinds": "kinds of data (runs)",
    "max_ulp": "largest difference, units in the last place",
}
_PROVENANCE = ("strategy", "budget", "seed", "source_hash", "text_hash")


def _result(r: Result) -> dict[str, Any]:
    block = r.block
    provenance = [(k, block[k]) for k in _PROVENANCE if k in block]
    provenance += sorted((block.get("versions") or {}).items())
    return {
        "result": r,
        "verification": [(_WORDS.get(k, k.replace("_", " ")), _value(v)) for k, v in r.verification.items()],
        "provenance": [("fingerprint", r.fingerprint), *provenance, *_configuration(block)],
    }


def _configuration(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was chosen, in one row."""
    chosen = block.get("configuration")
    point = chosen.get("point") if isinstance(chosen, Mapping) else None
    if isinstance(point, Mapping):
        yield "configuration", ", ".join(f"{k} = {_compact(v)}" for k, v in sorted(point.items()))


def _compact(v: object) -> str:
    return v if isinstance(v, str) else json.dumps(finite(v), separators=(",", ":"), ensure_ascii=False)


def _value(v: object) -> str:
    if isinstance(v, float):
        return three(v) if math.isfinite(v) else "–"
    if isinstance(v, Mapping):
        return ", ".join(f"{k} ({_value(x)})" for k, x in v.items()) or "–"
    if isinstance(v, list | tuple):
        return "; ".join(map(_value, v)) or "–"
    return str(v)
