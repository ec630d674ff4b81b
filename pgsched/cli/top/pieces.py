"""Parts that the screen of `pgsched top` is drawn from: lines, columns, bars and charts of a given width.

Invariant: width is counted in cells of the terminal. Control characters in foreign text are escaped before the text is
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from pgsched.cli.commands.run.watch import progress_words
from pgsched.cli.output.printing import STATES, format_cell
from pgsched.cli.top.state import Target
from pgsched.core.progress import parse_progress

BLOCKS = "▂▃▄▅▆▇█"
NOTHING, ZERO = " ", "▁"
FULL, EMPTY = "█", "░"
# replacements for terminals without these characters
ASCII = str.maketrans(dict(zip(BLOCKS + ZERO + EMPTY + "…≈·", ".:-=+*#_.~~-", strict=True)))
Cell = Text | Callable[[int], Text]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    `width`: the most cells it takes; columns of width 0 share the remaining cells.
    `right`: align to the right.
    `min_screen`: leave the column out on screens narrower than this.
    """

    title: str
    width: int = 0
    right: bool = False
    min_screen: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """A line of a table.

    `target`: what Enter opens.
    `actions`: the actions that are possible (cancel, retry, pause, resume).
    `name`: the name of the thing, for questions and notes.
    `job`: the job that the line belongs to.
    """

    cells: tuple[Cell, ...]
    target: Target | None = None
    actions: frozenset[str] = frozenset()
    name: str = ""
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Lines under a heading; without columns, each line has one cell as wide as the screen."""

    columns: tuple[Column, ...]
    items: tuple[Item, ...]
    empty: str = ""


def text_of_value(value: Any, style: str = "") -> Text:
    """Return a value as text on one line, with control characters escaped."""
    return Text(format_cell(value), style=style or STATES.get(str(value), ""))


def plain_item(text: str, style: str = "") -> Item:
    """Return a line of text that cannot be selected."""
    return Item((text_of_value(text, style),))


def fit_text(text: Text, width: int, *, right: bool = False) -> Text:
    """Cut or pad the text to exactly `width` cells."""
    fitting = text.copy()
    fitting.truncate(max(width, 0), overflow="ellipsis")
    missing = max(width, 0) - cell_len(fitting.plain)
    fitting.pad_left(missing) if right else fitting.pad_right(missing)
    return fitting


def join_ends(left: Text, right: Text, width: int) -> Text:
    """Put two texts at the two ends of a line; the left one is cut if there is no room."""
    room = width - cell_len(right.plain)
    return fit_text(left, width) if room < 12 else fit_text(left, room).append_text(right)


def draw_sparkline(values: Sequence[float | None], width: int) -> str:
    """Draw the newest values as a line of blocks, scaled to the highest value.

    None (unknown) is a gap; zero is the lowest block.
    """
    shown = list(values)[-width:] if width > 0 else []
    top = max((value for value in shown if value is not None), default=0.0)
    return "".join(block_of_value(value, top) for value in shown).rjust(max(width, 0))


def block_of_value(value: float | None, top: float) -> str:
    """Return the block of one value; `top` is the highest value of the line."""
    if value is None:
        return NOTHING
    return ZERO if value <= 0 or top <= 0 else BLOCKS[min(len(BLOCKS) - 1, int(value / top * len(BLOCKS)))]


def draw_bar(share: float, width: int) -> str:
    """Draw a bar that is empty at 0 and full at 1."""
    full = round(max(0.0, min(1.0, share)) * width)
    return FULL * full + EMPTY * (width - full)


def progress_cell(reported: Any, room: int = 10) -> Callable[[int], Text]:
    """Return a cell with a run's progress: a bar of at most `room` cells, and words."""

    def drawn(width: int) -> Text:
        words, found = progress_words(reported), parse_progress(reported)
        if found is None or not found["total"]:
            return Text(words)
        return Text.assemble((draw_bar(found["done"] / found["total"], min(room, width)), "cyan"), " ", words)

    return drawn


def column_widths(columns: Sequence[Column], items: Sequence[Item], width: int) -> list[int]:
    """Return the width of each column in cells; 0 leaves the column out.

    One cell stays free between two columns. Columns without a width share the remaining cells.
    """
    natural = [max([cell_len(column.title), *(natural_width(item.cells[n]) for item in items)])
               for n, column in enumerate(columns)]  # fmt: skip
    found = [0 if width < column.min_screen else min(natural[n], column.width) if column.width else -1
             for n, column in enumerate(columns)]  # fmt: skip
    left = width + 1 - sum(size + 1 for size in found if size > 0)
    open_ones = [n for n, size in enumerate(found) if size < 0]
    for place, n in enumerate(open_ones):  # a column leaves what it does not need to the next; the last takes the rest
        share = left // (len(open_ones) - place) - 1
        last = n == open_ones[-1]
        found[n] = max(1, share if last else min(share, natural[n]))
        left -= found[n] + 1
    return found


def natural_width(content: Cell) -> int:
    """Return the width that a cell needs to show all of its text."""
    return cell_len(content.plain) if isinstance(content, Text) else 30


def draw_line(columns: Sequence[Column], sizes: Sequence[int], cells: Sequence[Cell]) -> Text:
    """Draw one line of a table."""
    texts = []
    for column, size, content in zip(columns, sizes, cells, strict=True):
        if size > 0:
            text = content if isinstance(content, Text) else content(size)
            texts.append(fit_text(text, size, right=column.right))
    return Text(" ").join(texts)


def draw_heading(columns: Sequence[Column], sizes: Sequence[int]) -> Text:
    """Draw the titles of the columns."""
    title_line = draw_line(columns, sizes, [Text(column.title) for column in columns])
    title_line.stylize("bold")
    return title_line
