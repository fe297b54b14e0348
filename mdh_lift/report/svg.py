"""A picture of iterations and dependences as SVG, without a library.

    Picture  ->  <svg role="img" …>      1-D in a row, 2-D in a grid, 3-D (and more, projected) at an angle

Colours and strokes are classes that the style sheet of the page defines, so that they follow light and dark:
``point s0`` … ``s5`` for statements (each with a shape of its own), ``arrow flow|anti|output``, and ``free``
where a combine operator absorbs the dependence.  Points of one statement are one path, as are arrows of
one kind: a picture has a few kilobytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from html import escape

from mdh_lift.report.picture import Dependence, Picture, Place

SHAPES = 6
MOST_ARROWS = 60
_STEP = 44.0
_WIDE = 60.0  # with three loops
_DEPTH = (17.0, -11.0)  # of the outermost of three loops: to the back
_RADIUS = 4.0
_MARGIN = 34.0
Spot = tuple[float, float]


def svg(picture: Picture, label: str, words: str = "") -> str:
    """The drawing with ``label`` as its name; ``words``: id of the element that has the picture in words."""
    axes = drawn_axes(picture)
    places = _Places(picture, axes)
    arrows = drawn_arrows(picture)
    spots = {(k, place): places.spot(k, place) for k, place in picture.instances}
    xs, ys = zip(*spots.values(), strict=True)
    high = 30.0 if len(axes) == 1 and arrows else 0.0  # room for arcs
    left, top = min(xs) - _MARGIN, min(ys) - _MARGIN - high
    width, height = max(xs) - left + _MARGIN, max(ys) - top + _MARGIN
    name = escape(label, quote=True)
    about = f' aria-describedby="{escape(words, quote=True)}"' if words else ""
    out = [
        f'<svg role="img" aria-label="{name}" viewBox="{_n(left)} {_n(top)} {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}"{about}>'
    ]
    out += _axis_names(picture, axes, places, left, top)
    out += _arrows(picture, arrows, spots, flat=len(axes) == 1)
    out += _points(picture, spots)
    return "".join(out) + "</svg>"


def drawn_axes(picture: Picture) -> tuple[int, ...]:
    """Positions of the loops that are drawn, at most three: first those along which something depends."""
    if picture.depth <= 3:
        return tuple(range(picture.depth))
    carried = {k for d in picture.dependences for k, x in enumerate(d.distance) if x}
    order = sorted(range(picture.depth), key=lambda k: (k not in carried, k))
    return tuple(sorted(order[:3]))


def drawn_arrows(picture: Picture) -> list[Dependence]:
    """All of them, or where they are too many those into one instance of each statement."""
    if len(picture.dependences) <= MOST_ARROWS:
        return list(picture.dependences)
    into: dict[tuple[int, Place], list[Dependence]] = {}
    for d in picture.dependences:
        into.setdefault((d.to, d.target), []).append(d)
    chosen: dict[int, list[Dependence]] = {}
    for (to, _), found in into.items():
        if len(found) > len(chosen.get(to, [])):
            chosen[to] = found
    return list(itertools.chain.from_iterable(chosen.values()))[:MOST_ARROWS]


class _Places:
    """Where an instance stands."""

    def __init__(self, picture: Picture, axes: Sequence[int]) -> None:
        self.axes = axes
        together: dict[Place, set[int]] = {}
        for k, place in picture.instances:
            together.setdefault(self.project(place), set()).add(k)
        self.most = max(map(len, together.values()))
        self.order = {k: n for n, k in enumerate(sorted({k for s in together.values() for k in s}))}

    def project(self, place: Place) -> Place:
        """Coordinates along the drawn loops; before a loop that the statement is not in, -1."""
        return tuple(place[k] if k < len(place) else -1 for k in self.axes)

    def spot(self, statement: int, place: Place) -> Spot:
        x, y = self.of(self.project(place))
        if self.most == 1:
            return x, y
        turn = 2 * math.pi * self.order[statement] / len(self.order)
        apart = 9 if len(self.axes) < 3 else 6
        return x + apart * math.cos(turn), y + apart * math.sin(turn)

    def of(self, at: Place) -> Spot:
        match at:
            case (i,):
                return i * _STEP, 0.0
            case (i, j):
                return j * _STEP, i * _STEP
            case (i, j, k):
                return k * _WIDE + i * _DEPTH[0], j * _WIDE + i * _DEPTH[1]
        return 0.0, 0.0


# --------------------------------------------------------------------------- parts


def _n(v: float) -> str:
    return f"{v:.1f}".removesuffix(".0")


def _points(picture: Picture, spots: dict[tuple[int, Place], Spot]) -> list[str]:
    out = []
    for k in range(len(picture.statements)):
        own = dict.fromkeys(spot for (n, _), spot in spots.items() if n == k)
        if own:
            path = "".join(f"M{_i(x)} {_i(y)}{_SHAPES[k % SHAPES]}" for x, y in own)
            out.append(f'<path class="point s{k % SHAPES}" d="{path}"/>')
    return out


_SHAPES = (
    "h0",  # a dot: the cap of a line without length
    "m-3.5 -3.5h7v7h-7z",  # square
    "m0 -4.5l4.3 7.8h-8.6z",  # triangle
    "m0 -4.8l4.8 4.8l-4.8 4.8l-4.8 -4.8z",  # diamond
    "m-4.3 -3.5h8.6l-4.3 7.8z",  # triangle down
    "m-4.5 -1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3z",  # plus
)


def mark(statement: int) -> str:
    """The sign of a statement alone, for a legend."""
    path = f'<path class="point s{statement % SHAPES}" d="M7 7{_SHAPES[statement % SHAPES]}"/>'
    return f'<svg class="mark" width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">{path}</svg>'


def line(kind: str, free: bool) -> str:
    """An arrow of a kind alone, for a legend."""
    path = f'<path class="arrow {kind}{" free" if free else ""}" d="M2 7H24M19 4L24 7L19 10"/>'
    return f'<svg class="mark" width="28" height="14" viewBox="0 0 28 14" aria-hidden="true">{path}</svg>'


def _arrows(
    picture: Picture, arrows: Iterable[Dependence], spots: dict[tuple[int, Place], Spot], flat: bool
) -> list[str]:
    paths: dict[str, dict[str, None]] = {}
    for d in arrows:
        a, b = spots[d.of, d.source], spots[d.to, d.target]
        if math.dist(a, b) < 2 * _RADIUS:
            continue
        kind = d.kind + (" free" if d.combined else "")
        paths.setdefault(kind, {})[_arrow(a, b, flat)] = None
    return [f'<path class="arrow {kind}" d="{"".join(found)}"/>' for kind, found in paths.items()]


def _arrow(a: Spot, b: Spot, flat: bool) -> str:
    """A line that bends a little, from edge to edge, with a head of two strokes."""
    length = math.dist(a, b)
    bend = min(30.0, 10 + length * 0.12) if flat else min(9.0, length * 0.08)
    ux, uy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
    middle = ((a[0] + b[0]) / 2 + uy * bend, (a[1] + b[1]) / 2 - ux * bend)
    start, end = _towards(a, middle, _RADIUS + 1), _towards(b, middle, _RADIUS + 2)
    turn = math.atan2(end[1] - middle[1], end[0] - middle[0])
    heads = [(end[0] - 5 * math.cos(turn + s), end[1] - 5 * math.sin(turn + s)) for s in (0.45, -0.45)]
    (hx, hy), (kx, ky) = heads
    at, to = f"{_i(start[0])} {_i(start[1])}", f"{_i(end[0])} {_i(end[1])}"
    barbs = "".join(f"M{to}l{_i(x - end[0])} {_i(y - end[1])}" for x, y in ((hx, hy), (kx, ky)))
    return f"M{at}Q{_i(middle[0])} {_i(middle[1])} {to}{barbs}"


def _i(v: float) -> str:
    return str(round(v))


def _towards(a: Spot, b: Spot, by: float) -> Spot:
    length = math.dist(a, b) or 1.0
    return a[0] + (b[0] - a[0]) * by / length, a[1] + (b[1] - a[1]) * by / length


def _axis_names(picture: Picture, axes: Sequence[int], places: _Places, left: float, top: float) -> list[str]:
    """A short arrow with a name along each loop."""
    names = [picture.axes[k] for k in axes]
    origin = (left + 12, top + 12)
    if len(axes) == 3:
        origin = (left + 12, top + 26)
    zero = places.of((0,) * len(axes))
    out = []
    for n, name in enumerate(names):
        one = places.of(tuple(int(m == n) for m in range(len(axes))))
        ux, uy = one[0] - zero[0], one[1] - zero[1]
        length = math.hypot(ux, uy) or 1.0
        tip = (origin[0] + ux / length * 20, origin[1] + uy / length * 20)
        text = (origin[0] + ux / length * 27, origin[1] + uy / length * 27 + 3)
        out.append(f'<path class="axis" d="M{_n(origin[0])} {_n(origin[1])}L{_n(tip[0])} {_n(tip[1])}"/>')
        out.append(f'<text class="axis" x="{_n(text[0])}" y="{_n(text[1])}">{escape(name)}</text>')
    return out
