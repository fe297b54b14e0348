"""Plots as Vega-Lite specifications: templates without data, and rows of data for each plot.

    Report  ->  {"templates": {name: spec}, "shared": {name: rows}, "plots": [{"id", "template", "label",
                 "rows" | "same"}]}

``shared``: rows that all plots of a template have; ``same``: the plot whose rows these are.  A layer with a
name is for the rows of this kind; the page leaves it out where there are none.
Colours are variables of the page's style sheet, so that plots follow light, dark and print without being
drawn again.  Every plot has a description; the page has its figures as a table as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mdh_lift.report.data import Nest, Report, Roof, Search

Spec = dict[str, Any]
Rows = list[dict[str, Any]]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)", "titleColor": "var(--soft)", "titleFontWeight": "normal",
        "gridColor": "var(--line)", "domainColor": "var(--line)", "tickColor": "var(--line)",
        "labelFontSize": 11, "titleFontSize": 12,
    },
    "legend": {
        "labelColor": "var(--text)", "titleColor": "var(--soft)", "orient": "bottom", "labelFontSize": 11,
        "labelLimit": 260,
    },
    "text": {"color": "var(--text)", "fontSize": 11},
}  # fmt: skip


def _spec(**parts: Any) -> Spec:
    return {"$schema": SCHEMA, "data": {"name": "rows"}, "config": CONFIG, **parts}


def _axis(title: str, **rest: Any) -> Spec:
    return {"title": title, **rest}


SPEEDUP = _spec(
    height=24,  # of each row
    encoding={"y": {"field": "nest", "type": "nominal", "sort": None, "axis": _axis("", labelLimit=190)}},
    layer=[
        {
            "mark": {"type": "bar", "height": 12, "color": "var(--one)"},
            "encoding": {
                "x": {
                    "field": "speedup", "type": "quantitative",
                    "scale": {"type": "log", "base": 2, "nice": False},
                    "axis": _axis("original / result, log scale", format="~r", tickCount=6, labelSeparation=6,
                                  labelOverlap="greedy"),
                },
                "x2": {"datum": 1},
            },
        },
        {
            "mark": {"type": "rule", "color": "var(--text)", "strokeWidth": 1.5},
            "encoding": {
                "x": {"field": "low", "type": "quantitative"},
                "x2": {"field": "high"},
            },
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 6},
            "encoding": {
                "x": {"field": "end", "type": "quantitative"},
                "text": {"field": "label", "type": "nominal"},
            },
        },
    ],
)  # fmt: skip

_MS: Spec = {
    "type": "quantitative",
    "scale": {"type": "log", "nice": False},
    "axis": _axis("one run, ms (log scale)", format="~g", tickCount=5, grid=False),
}


def _convergence(field: str, title: str) -> Spec:
    x: Spec = {"field": field, "type": "quantitative", "axis": _axis(title, format="~s", grid=False)}
    if field == "number":
        x["axis"]["tickMinStep"] = 1
    return _spec(
        height=200,
        layer=[
            {
                "name": "trial",
                "transform": [{"filter": "datum.kind == 'trial'"}],
                "mark": {"type": "point", "filled": True, "size": 26, "color": "var(--two)", "opacity": 0.75},
                "encoding": {"x": x, "y": {"field": "ms", **_MS}},
            },
            {
                "name": "rejected",
                "transform": [{"filter": "datum.kind == 'rejected'"}],
                "mark": {"type": "tick", "color": "var(--bad)", "size": 9, "y": "height"},
                "encoding": {"x": x},
            },
            {
                "name": "best",
                "transform": [
                    {"filter": "datum.kind != 'original'"},
                    {"window": [{"op": "min", "field": "ms", "as": "best"}], "sort": [{"field": "number"}]},
                    {"filter": "isValid(datum.best) && datum.best !== null"},
                ],
                "mark": {
                    "type": "line", "interpolate": "step-after", "color": "var(--one)", "strokeWidth": 2,
                },
                "encoding": {"x": x, "y": {"field": "best", **_MS}},
            },
            {
                "name": "original",
                "transform": [{"filter": "datum.kind == 'original'"}],
                "mark": {"type": "rule", "strokeDash": [5, 4], "color": "var(--text)"},
                "encoding": {"y": {"field": "ms", **_MS}},
            },
        ],
    )  # fmt: skip


def _log(field: str, title: str) -> Spec:
    scale = {"type": "log", "nice": False}
    return {
        "field": field,
        "type": "quantitative",
        "scale": scale,
        "axis": _axis(title, format="~g", tickCount=5, grid=False),
    }


_COLOURS = [f"var(--{name})" for name in ("one", "two", "three", "four", "soft", "text")]
ROOFLINE = _spec(
    height=260,
    encoding={
        "x": _log("intensity", "floating-point operations per byte (log scale)"),
        "y": _log("rate", "GFLOP/s (log scale)"),
    },
    layer=[
        {
            "name": "roof",
                "transform": [{"filter": "datum.kind == 'roof'"}],
            "mark": {"type": "line", "strokeWidth": 1.5},
            "encoding": {
                "detail": {"field": "name"},
                "color": {
                    "field": "name", "type": "nominal", "sort": None, "legend": {"title": None},
                    "scale": {"range": _COLOURS},
                },
                "strokeDash": {"field": "name", "type": "nominal", "sort": None, "legend": {"title": None}},
            },
        },
        {
            "name": "work",
                "transform": [{"filter": "datum.kind == 'work'"}],
            "mark": {"type": "rule", "color": "var(--soft)", "strokeDash": [2, 3]},
            "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "rate"}},
        },
        {
            "name": "before",
                "transform": [{"filter": "datum.kind == 'before'"}],
            "mark": {"type": "point", "size": 60, "color": "var(--text)", "filled": False},
        },
        {
            "name": "after",
                "transform": [{"filter": "datum.kind == 'after'"}],
            "mark": {"type": "point", "size": 70, "color": "var(--text)", "filled": True, "opacity": 1},
        },
    ],
)  # fmt: skip

TEMPLATES: Mapping[str, Spec] = {
    "speedup": SPEEDUP,
    "trials": _convergence("number", "evaluations"),
    "time": _convergence("offset", "seconds since the search began"),
    "roofline": ROOFLINE,
}


# --------------------------------------------------------------------------- data


def plots(report: Report) -> dict[str, Any]:
    """All plots of the page; ``id`` is that of the element it is drawn in."""
    found: list[dict[str, Any]] = []

    def add(where: str, template: str, label: str, rows: Rows) -> None:
        if rows:
            found.append({"id": where, "template": template, "label": label, "rows": rows})

    add("plot-speedup", "speedup", "Speedup of each nest with its interval", speedup_rows(report))
    under = [n for n in report.nests if n.roof is not None]
    roofs, points = roofline_rows(report.ceilings, under)
    add("plot-roofline", "roofline", "Roofline with all nests", [row for own in points for row in own])
    under_roof = iter(points)
    for k, nest in enumerate(report.nests):
        for s, search in enumerate(nest.searches):
            rows = trial_rows(search)
            what = f"of {nest.name} at {search.sizes}: times of configurations and the best so far"
            add(f"plot-{k}-{s}-trials", "trials", f"Search {what}, by evaluations", rows)
            if rows:  # the same rows
                same = {"id": f"plot-{k}-{s}-time", "template": "time", "label": f"Search {what}, by time"}
                found.append(same | {"same": f"plot-{k}-{s}-trials"})
        if nest.roof is not None:
            add(f"plot-{k}-roofline", "roofline", f"Roofline of {nest.name}", next(under_roof, []))
    return {"templates": dict(TEMPLATES), "shared": {"roofline": roofs}, "plots": found}


def speedup_rows(report: Report) -> Rows:
    rows: Rows = []
    for nest in report.nests:
        best = nest.headline
        if best is None or best.speedup is None or best.speedup.low <= 0:
            continue
        r = best.speedup
        rows.append({
            "nest": short(nest.name), "speedup": _digits(r.median), "low": _digits(r.low),
            "high": _digits(r.high), "end": max(_digits(r.high), 1), "label": f"{r.median:.3g}×",
        })  # fmt: skip
    names = [row["nest"] for row in rows]
    for k, row in enumerate(rows):  # names are places on the axis
        if names.count(row["nest"]) > 1:
            row["nest"] += f" ({k + 1})"
    return sorted(rows, key=lambda row: -row["speedup"])


def short(name: str) -> str:
    """``gemm.c::gemm``: without directories, and without the label if it is the first nest's."""
    path, function, label = [*name.rsplit("::", 2), "", ""][:3]
    bare = path.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{bare}::{function}" + ("" if label in ("", "0") else f"::{label}")


def trial_rows(search: Search) -> Rows:
    if not search.trials:
        return []
    rows: Rows = []
    for t in search.trials:
        row: dict[str, Any] = {"kind": "trial" if t.seconds else "rejected", "number": t.number + 1}
        row |= {"offset": t.offset, "ms": _digits(t.seconds * 1e3) if t.seconds else None}
        rows.append(row)
    if search.original:
        rows.append({"kind": "original", "ms": _digits(search.original * 1e3)})
    return rows


def roofline_rows(ceilings: Mapping[str, Any] | None, nests: Sequence[Nest]) -> tuple[Rows, list[Rows]]:
    """The roofs, and for each nest a line at its intensity with its points; empty where nothing is known."""
    roofs = [n.roof for n in nests if n.roof is not None]
    if not roofs or ceilings is None:
        return [], []
    low, high = _around(r.intensity for r in roofs)
    rows = list(_roofs(ceilings, low, high, {r.kind for r in roofs}))
    rates = [float(row["rate"]) for row in rows]
    rates += [v / 1e9 for r in roofs for v in (r.achieved, r.before) if v]
    return rows, [list(_points(r, ceilings, min(rates))) for r in roofs]


def _around(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return 2.0 ** math.floor(math.log2(min(found)) - 2), 2.0 ** math.ceil(math.log2(max(found)) + 2)


def _roofs(ceilings: Mapping[str, Any], low: float, high: float, kinds: set[str]) -> Iterator[dict[str, Any]]:
    peaks, levels = _best(ceilings)
    top = max(peaks[k] for k in kinds)
    for name, bytes_ in sorted(levels.items(), key=lambda item: item[1]):
        turn = min(max(top / bytes_, low), high)
        for x in (low, turn):
            yield {
                "kind": "roof", "name": f"{name}: {_digits(bytes_ / 1e9):g} GB/s",
                "intensity": _digits(x), "rate": _digits(min(x * bytes_, top) / 1e9),
            }  # fmt: skip
    for kind in sorted(kinds):
        begin = max(low, min(peaks[kind] / bytes_ for bytes_ in levels.values()))
        name = f"FMA peak, {kind} precision: {_digits(peaks[kind] / 1e9):g} GFLOP/s"
        for x in (begin, high):
            yield {"kind": "roof", "name": name, "intensity": _digits(x), "rate": _digits(peaks[kind] / 1e9)}


def _best(ceilings: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Peaks by precision and read bandwidths by level: the best of any number of threads."""
    peaks = {k: max(float(p[k]) for p in ceilings["peaks"]) for k in ("single", "double")}
    levels: dict[str, float] = {}
    for x in ceilings["levels"]:
        levels[x["name"]] = max(float(x["read"]), levels.get(x["name"], 0.0))
    return peaks, levels


def _points(roof: Roof, ceilings: Mapping[str, Any], bottom: float) -> Iterator[dict[str, Any]]:
    reached = limit(roof, ceilings) / 1e9
    x = _digits(roof.intensity)
    yield {"kind": "work", "intensity": x, "low": _digits(bottom), "rate": _digits(reached)}
    for kind, value in (("before", roof.before), ("after", roof.achieved)):
        if value:
            yield {"kind": kind, "intensity": x, "rate": _digits(value / 1e9)}


def limit(roof: Roof, ceilings: Mapping[str, Any]) -> float:
    """Operations per second that no version exceeds whose data come from memory."""
    peaks, levels = _best(ceilings)
    return min(peaks[roof.kind], roof.intensity * levels["memory"])


def _digits(v: float) -> float:
    """Four significant digits: what a plot can show."""
    return float(f"{v:.4g}")
