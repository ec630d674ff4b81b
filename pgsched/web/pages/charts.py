"""Small charts: geometry in, points of an SVG out. Pure; the templates draw them.

The rule: a chart says its figures in text as well (a caption, and a title on each stretch), and a gap in the figures is
a gap in the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from markupsafe import Markup, escape

from pgsched.core.wording import duration
from pgsched.web.pages.rendering import count

WIDTH, HEIGHT = 600.0, 120.0
SAMPLED = "estimated from a sample"
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A series: its pieces without gaps as `x,y x,y`, its areas down to the axis where it is filled."""

    label: str
    look: str
    now: str
    pieces: tuple[str, ...]
    areas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spot:
    """A stretch of the axis that one points at, with what it says."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What a template draws. `top`: the value at the upper edge."""

    title: str
    lines: tuple[Line, ...]
    top: str
    begin: str
    spots: tuple[Spot, ...]
    note: str = ""
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One line to draw."""

    label: str
    look: str
    values: Values
    filled: bool = False


def chart(
    title: str,
    series: Sequence[Series],
    times: Sequence[str],
    show: Callable[[float], str],
    begin: str,
    *,
    places: Sequence[float] | None = None,
    note: str = "",
) -> Chart:
    """A chart of series over the same times. `places`: where each lies from 0 to 1; None: evenly."""
    size = len(times)
    where = list(places) if places is not None else [i / max(size - 1, 1) for i in range(size)]
    known = [value for one in series for value in one.values if value is not None]
    top = nice(max(known, default=0.0))
    lines = tuple(line(one, where, top, show) for one in series)
    step = WIDTH / max(size, 1)
    spots = tuple(
        Spot(round(max(where[i] * WIDTH - step / 2, 0), 1), round(step, 1), said(times[i], series, i, show))
        for i in range(size)
    )
    return Chart(title, lines, show(top) if known else "", begin, spots if known else (), note, not known)


def said(time: str, series: Sequence[Series], i: int, show: Callable[[float], str]) -> str:
    """What a stretch says."""
    told = [f"{one.label} {show(value)}" for one in series if (value := one.values[i]) is not None]
    return f"{time}: {', '.join(told) or 'nothing'}"


def line(series: Series, where: Sequence[float], top: float, show: Callable[[float], str]) -> Line:
    """The points of a series."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for place, value in zip(where, series.values, strict=True):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((round(place * WIDTH, 1), round(HEIGHT - min(value / top, 1) * (HEIGHT - 4), 1)))
    drawn = [piece for piece in pieces if piece]
    last = next((value for value in reversed(series.values) if value is not None), None)
    areas = tuple(area(piece) for piece in drawn) if series.filled else ()
    return Line(series.label, series.look, "–" if last is None else show(last), tuple(map(points, drawn)), areas)


def points(piece: list[tuple[float, float]]) -> str:
    """`x,y x,y`; a point alone becomes a short stroke."""
    piece = piece if len(piece) > 1 else [(piece[0][0] - 2, piece[0][1]), (piece[0][0] + 2, piece[0][1])]
    return " ".join(f"{x:g},{y:g}" for x, y in piece)


def area(piece: list[tuple[float, float]]) -> str:
    return f"{piece[0][0]:g},{HEIGHT:g} {points(piece)} {piece[-1][0]:g},{HEIGHT:g}"


def nice(value: float) -> float:
    """The next of 1, 2, 5, 10, ... above, so that the axis does not jump at every look."""
    if value <= 0:
        return 1.0
    size = 1.0
    while size < value:
        size *= 10
    while size / 10 >= value:
        size /= 10
    return next((size * share for share in (0.1, 0.2, 0.5) if size * share >= value), size)


# ---- bars of single runs

BAD = ("dead", "missed")
TALLEST, MARK = 84.0, 13  # of bars, and of the mark above those that ended badly
TALL = {"dead": 12, "missed": 12, "late": 8, "skipped": 3, "cancelled": 3}  # in a strip


@dataclass(frozen=True, slots=True)
class Bar:
    """A run: its height from 0 to 100, its state, and what it says. That it ended badly is said by a mark as well, so
    that nobody has to tell colours apart."""

    state: str
    height: float
    text: str
    run_id: int

    @property
    def bad(self) -> bool:
        return self.state in BAD


def bars(runs: Sequence[dict[str, Any]]) -> list[Bar]:
    """Runs, oldest first, as high as they took long, beside the longest."""
    lengths = [length(run) for run in runs]
    longest = max(lengths, default=0.0) or 1.0
    return [
        Bar(run["look"], round(max(8.0, TALLEST * took / longest), 1), told(run, took), run["id"])
        for run, took in zip(runs, lengths, strict=True)
    ]


def strip(found: Sequence[Bar], size: int) -> Markup:
    """The bars as marks from the right, the worse the taller, each saying what it was. Made here: a page has thousands
    of them."""
    pieces = [
        f'<rect class="bar {bar.state}" x="{8 * n}" y="{12 - tall(bar)}" width="6.5" height="{tall(bar)}">'
        f"<title>{escape(bar.text)}</title></rect>"
        for n, bar in enumerate(found, size - len(found))
    ]
    return Markup("".join(pieces))


def tall(bar: Bar) -> int:
    """How tall a mark of a strip is, of 12."""
    return TALL.get(bar.state, 6)


def heights(found: Sequence[Bar], size: int) -> list[tuple[str, str]]:
    """The bars as one path of each state, from the right."""
    paths: dict[str, list[str]] = {}
    for n, bar in enumerate(found, size - len(found)):
        mark = f"M{8 * n} 0h6.5l-3.25 {MARK}z" if bar.bad else ""
        paths.setdefault(bar.state, []).append(f"M{8 * n} 100v-{bar.height:g}h6.5v{bar.height:g}z{mark}")
    return [(state, "".join(pieces)) for state, pieces in paths.items()]


def length(run: dict[str, Any]) -> float:
    """How long its last attempt took, in seconds."""
    if run["started_at"] is None or run["finished_at"] is None:
        return 0.0
    took: timedelta = run["finished_at"] - run["started_at"]
    return max(0.0, took.total_seconds())


def told(run: dict[str, Any], took: float) -> str:
    """`2026-05-01 02:00:00 UTC: succeeded, took 3s`."""
    late = f", {duration(run['late_s'])} late" if run["look"] == "late" else ""
    spent = f", took {duration(took)}" if took else ""
    why = f": {str(run['reason'])[:120]}" if run.get("reason") else ""
    slots = f", {run['covers_count']} slots" if run.get("covers_count") else ""
    return f"{run['scheduled_at']:%Y-%m-%d %H:%M:%S} UTC: {run['state']}{late}{spent}{slots}{why}"


def number(value: float) -> str:
    """A plain count for an axis."""
    return count(int(value)) if value == int(value) else count(value)
