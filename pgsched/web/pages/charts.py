"""Small charts: series of figures turned into points of an SVG. Pure functions; the templates draw.

Invariant: a chart also says its figures as text, in a caption and in a tooltip of each interval. A gap in the figures
is a gap in the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from markupsafe import Markup, escape

from pgsched.core.wording import format_short_duration
from pgsched.web.pages.rendering import format_thousands

WIDTH, HEIGHT = 600.0, 120.0
SAMPLED = "estimated from a sample"
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A drawn series.

    `now`: the newest figure as text.
    `pieces`: the parts without gaps, each as `x,y x,y`.
    `areas`: the areas below the pieces down to the axis, of a filled series.
    """

    label: str
    look: str
    now: str
    pieces: tuple[str, ...]
    areas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoverInterval:
    """An interval of the axis to point at, with its tooltip."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for a template to draw.

    `top`: the figure at the upper edge, as text.
    `begin`: the text at the left end of the axis.
    `empty`: no figure is known.
    """

    title: str
    lines: tuple[Line, ...]
    top: str
    begin: str
    spots: tuple[HoverInterval, ...]
    note: str = ""
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One series to draw: its label, its CSS class, and its values; None is a gap."""

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
    """Return a chart of series over the same times.

    `times`: the texts of the times, for tooltips.
    `show`: formats a figure.
    `places`: the place of each time from 0 to 1; None: evenly spaced.
    """
    size = len(times)
    where = list(places) if places is not None else [i / max(size - 1, 1) for i in range(size)]
    known = [value for one in series for value in one.values if value is not None]
    top = round_up_axis(max(known, default=0.0))
    lines = tuple(draw_series(one, where, top, show) for one in series)
    step = WIDTH / max(size, 1)
    spots = tuple(
        HoverInterval(
            round(max(where[i] * WIDTH - step / 2, 0), 1),
            round(step, 1),
            tooltip_of_interval(times[i], series, i, show),
        )
        for i in range(size)
    )
    return Chart(title, lines, show(top) if known else "", begin, spots if known else (), note, not known)


def tooltip_of_interval(time: str, series: Sequence[Series], i: int, show: Callable[[float], str]) -> str:
    """Return the tooltip of one interval."""
    texts = [f"{one.label} {show(value)}" for one in series if (value := one.values[i]) is not None]
    return f"{time}: {', '.join(texts) or 'nothing'}"


def draw_series(series: Series, where: Sequence[float], top: float, show: Callable[[float], str]) -> Line:
    """Return the points of a series."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for place, value in zip(where, series.values, strict=True):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((round(place * WIDTH, 1), round(HEIGHT - min(value / top, 1) * (HEIGHT - 4), 1)))
    drawn = [piece for piece in pieces if piece]
    last = next((value for value in reversed(series.values) if value is not None), None)
    areas = tuple(format_area(piece) for piece in drawn) if series.filled else ()
    return Line(series.label, series.look, "–" if last is None else show(last), tuple(map(format_points, drawn)), areas)


def format_points(piece: list[tuple[float, float]]) -> str:
    """Return points as `x,y x,y`; a lone point becomes a short stroke."""
    piece = piece if len(piece) > 1 else [(piece[0][0] - 2, piece[0][1]), (piece[0][0] + 2, piece[0][1])]
    return " ".join(f"{x:g},{y:g}" for x, y in piece)


def format_area(piece: list[tuple[float, float]]) -> str:
    """Return the area between a piece and the axis, as `x,y x,y`."""
    return f"{piece[0][0]:g},{HEIGHT:g} {format_points(piece)} {piece[-1][0]:g},{HEIGHT:g}"


def round_up_axis(value: float) -> float:
    """Return the next of 1, 2, 5, 10, ... above, so that the axis does not change at every look."""
    if value <= 0:
        return 1.0
    size = 1.0
    while size < value:
        size *= 10
    while size / 10 >= value:
        size /= 10
    return next((size * share for share in (0.1, 0.2, 0.5) if size * share >= value), size)


# ---- bars, one for each run

BAD = ("dead", "missed")
TALLEST, MARK = 84.0, 13  # heights of a bar, and of the mark above a bad end
TALL = {"dead": 12, "missed": 12, "late": 8, "skipped": 3, "cancelled": 3}  # heights of marks in a strip, of 12


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar for one run: its state, its height from 0 to 100, its tooltip and its run.

    A bad end is also shown by a mark, so that colour is not the only sign.
    """

    state: str
    height: float
    text: str
    run_id: int

    @property
    def bad(self) -> bool:
        """Check whether the run ended badly."""
        return self.state in BAD


def bars(runs: Sequence[dict[str, Any]]) -> list[Bar]:
    """Return bars of runs, oldest first; the longest run has the tallest bar."""
    lengths = [duration_of_run(run) for run in runs]
    longest = max(lengths, default=0.0) or 1.0
    return [
        Bar(run["look"], round(max(8.0, TALLEST * took / longest), 1), tooltip_of_run(run, took), run["id"])
        for run, took in zip(runs, lengths, strict=True)
    ]


def draw_strip(found: Sequence[Bar], size: int) -> Markup:
    """Return marks of the bars, right-aligned; worse outcomes have taller marks, and each mark has a tooltip.

    The SVG is made here, not in a template, because a page has thousands of marks.
    """
    pieces = [
        f'<rect class="bar {bar.state}" x="{8 * n}" y="{12 - mark_height(bar)}" width="6.5"'
        f' height="{mark_height(bar)}">'
        f"<title>{escape(bar.text)}</title></rect>"
        for n, bar in enumerate(found, size - len(found))
    ]
    return Markup("".join(pieces))


def mark_height(bar: Bar) -> int:
    """Return the height of a mark in a strip, at most 12."""
    return TALL.get(bar.state, 6)


def duration_paths(found: Sequence[Bar], size: int) -> list[tuple[str, str]]:
    """Return the bars, right-aligned, as one SVG path for each state."""
    paths: dict[str, list[str]] = {}
    for n, bar in enumerate(found, size - len(found)):
        mark = f"M{8 * n} 0h6.5l-3.25 {MARK}z" if bar.bad else ""
        paths.setdefault(bar.state, []).append(f"M{8 * n} 100v-{bar.height:g}h6.5v{bar.height:g}z{mark}")
    return [(state, "".join(pieces)) for state, pieces in paths.items()]


def duration_of_run(run: dict[str, Any]) -> float:
    """Return how long the last attempt of a run took, in seconds; 0 if it has no end."""
    if run["started_at"] is None or run["finished_at"] is None:
        return 0.0
    took: timedelta = run["finished_at"] - run["started_at"]
    return max(0.0, took.total_seconds())


def tooltip_of_run(run: dict[str, Any], took: float) -> str:
    """Describe a run for a tooltip: `2026-05-01 02:00:00 UTC: succeeded, took 3s`."""
    late = f", {format_short_duration(run['late_s'])} late" if run["look"] == "late" else ""
    spent = f", took {format_short_duration(took)}" if took else ""
    why = f": {str(run['reason'])[:120]}" if run.get("reason") else ""
    slots = f", {run['covers_count']} slots" if run.get("covers_count") else ""
    return f"{run['scheduled_at']:%Y-%m-%d %H:%M:%S} UTC: {run['state']}{late}{spent}{slots}{why}"


def number(value: float) -> str:
    """Return a plain count for an axis."""
    return format_thousands(int(value)) if value == int(value) else format_thousands(value)
