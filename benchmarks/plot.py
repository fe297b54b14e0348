"""A bar chart as SVG: for every case and number of threads, each peer's share of the limit or of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

BAR, GAP, LABELS, WIDTH, ROW = 11, 14, 170, 560, 18
COLOURS = (
    "#9e9e9e", "#c7c7c7", "#dbdb8d", "#bcbd22", "#17becf", "#8c564b", "#e377c2", "#ff7f0e", "#2ca02c",
    "#98df8a", "#d62728", "#9467bd", "#1f77b4",
)  # fmt: skip


def chart(rows: Sequence[tuple[str, Mapping[str, float]]], title: str) -> str:
    """One group of bars per row, from 0 to 1: the fastest of a row has the longest.

    ``rows``: a label and the seconds of every peer that has some.
    """
    names = list(dict.fromkeys(name for _, seconds in rows for name in seconds))
    colour = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}
    drawn, y = [_text(8, 18, title, size=14)], 34
    for k, name in enumerate(names):
        x = 8 + 130 * (k % 6)
        drawn += [_box(x, y + ROW * (k // 6), 10, 10, colour[name])]
        drawn += [_text(x + 15, y + 9 + ROW * (k // 6), name)]
    y += ROW * ((len(names) + 5) // 6) + GAP
    for label, seconds in rows:
        drawn.append(_text(8, y + BAR, label))
        best = min(seconds.values(), default=0.0)
        for name, value in seconds.items():
            share = best / value if value else 0.0
            drawn.append(_box(LABELS + 60, y, WIDTH * share, BAR - 1, colour[name]))
            drawn.append(_text(LABELS + 64 + WIDTH * share, y + BAR - 2, f"{name} {1e3 * value:.3g} ms", 9))
            y += BAR
        y += GAP
    size = f'width="{LABELS + WIDTH + 240}" height="{y + GAP}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *drawn, "</svg>\n"])


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}">{escape(text)}</text>'
