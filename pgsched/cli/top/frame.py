"""The layout of `pgsched top`: turns a state into the lines of the screen.

Invariant: there are exactly as many lines as the screen has, and each is exactly as wide, whatever text is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from rich.text import Text

from pgsched.cli.top import details, header, tables
from pgsched.cli.top.pieces import (
    Item,
    Table,
    column_widths,
    draw_heading,
    draw_line,
    fit_text,
    plain_item,
    text_of_value,
)
from pgsched.cli.top.state import Pick, State, Target
from pgsched.services.top import Look

MARK = 2  # cells at the start of every line, for the mark of the selected one
LEAST_ITEMS = 2
AHEAD = 2  # lines visible below the selected one
TABLES_OF_PAGE = {
    "overview": tables.overview, "running": tables.running, "queues": tables.queues_page, "jobs": tables.jobs_page,
    "failures": tables.failures, "workers": tables.workers_page, "queue": tables.queue, "job": details.job_tables,
}  # fmt: skip
Line = tuple[Callable[[], Text], Item | None]  # the text is drawn only if the line is visible


def frame(state: State) -> list[Text]:
    """Return the lines of the whole screen."""
    top, bottom = header.header(state), header.footer(state)
    body = header.help_lines() if state.help else body_lines(state, body_height(state))
    lines = [*top, *body[: body_height(state)]]
    lines += [Text()] * (state.height - 1 - len(lines))
    return [fit_text(text, state.width) for text in [*lines[: max(0, state.height - 1)], bottom]][: state.height]


def body_lines(state: State, room: int) -> list[Text]:
    """Return the lines between header and footer, as many as fit."""
    look = state.current_look
    if look is None:
        return [Text("  reading ...")]
    if look.refused is not None:
        return [mark_line(text_of_value(look.refused, "red"), False, state.width)]
    return run_lines(state, look, room) if look.page.name == "run" else visible_lines(state, shown_tables(state), room)


def shown_tables(state: State) -> list[Table]:
    """Return the tables of the page as shown: on the overview, cut to the screen."""
    return (
        share_room(filtered_tables(state), body_height(state))
        if state.page.name == "overview"
        else filtered_tables(state)
    )


def filtered_tables(state: State) -> list[Table]:
    """Return the tables of the page, with its filter applied."""
    look = state.current_look
    if look is None or look.refused is not None or look.page.name not in TABLES_OF_PAGE:
        return []
    wanted = state.filter_text.casefold()
    tables = TABLES_OF_PAGE[look.page.name](look)
    return [replace(one, items=tuple(filter_items(one, wanted))) for one in tables] if wanted else tables


def filter_items(table: Table, wanted: str) -> list[Item]:
    """Return the lines that contain `wanted`; a table without selectable lines keeps all lines."""
    if not any(item.target for item in table.items):
        return list(table.items)
    return [item for item in table.items if any(wanted in text_of(cell).casefold() for cell in item.cells)]


def text_of(cell: object) -> str:
    """Return the text of a cell; empty for a cell that is a function of its width."""
    return cell.plain if isinstance(cell, Text) else ""


def selectable_items(state: State) -> list[Item]:
    """Return the selectable lines, in their order on the screen."""
    return [item for table in shown_tables(state) for item in table.items if item.target is not None]


def selected_index(state: State, there: Sequence[Item]) -> int | None:
    """Return the index of the selected line in `there`, or None if `there` is empty.

    The same target stays selected wherever it is now. If it is gone, the line in its place is selected.
    """
    pick = state.selections.get(state.page_without_filter, Pick())
    if not there:
        return None
    near = min(pick.index, len(there) - 1)
    if pick.target is None or there[near].target == pick.target:
        return near
    return next((n for n, item in enumerate(there) if item.target == pick.target), near)


def selected_item(state: State) -> Item | None:
    """Return the selected line, or None."""
    there = selectable_items(state)
    at = selected_index(state, there)
    return None if at is None else there[at]


def item_for_action(state: State) -> Item | None:
    """Return the line that a key acts on, or None.

    This is the selected line. On a run's page it is the run; on a job's page without a selected line, the job.
    """
    look = state.current_look
    if look is None or look.refused is not None:
        return None
    if look.page.name == "run":
        return details.run_facts(look)[0]
    own = filtered_tables(state)[0].items[0] if look.page.name == "job" else None
    return selected_item(state) or own


def is_paused(state: State, target: Target) -> bool:
    """Check whether the target is paused: the job of the page that is shown, or a queue."""
    look = state.current_look
    if look is None:
        return False
    if target[0] == "job":
        return bool(look.rows.get("job") and look.rows["job"][0]["paused"])
    return any((one.what, one.name) == target for one in look.status.paused)


def share_room(given: list[Table], room: int) -> list[Table]:
    """Cut the tables so that each keeps some lines on the screen; the longest are cut first."""
    sizes = [max(1, len(table.items)) + bool(table.columns) for table in given]
    least = [min(size, LEAST_ITEMS + bool(table.columns)) for size, table in zip(sizes, given, strict=True)]
    while sum(sizes) > room and sizes != least:
        widest = max(range(len(sizes)), key=lambda n: (sizes[n] - least[n], n))
        sizes[widest] -= 1
    return [
        replace(table, items=table.items[: size - bool(table.columns)])
        for table, size in zip(given, sizes, strict=True)
    ]


def visible_lines(state: State, given: list[Table], room: int) -> list[Text]:
    """Return the lines around the selected one; the heading of a lone table always stays."""
    there = [item for table in given for item in table.items if item.target is not None]
    at = selected_index(state, there)
    picked = None if at is None else there[at]
    all_lines = [line for table in given for line in table_lines(table, max(1, state.width - MARK))]
    lone = sum(bool(table.columns) for table in given) == 1 and given[0].columns
    pinned, scrolled = (all_lines[:1], all_lines[1:]) if lone else ([], all_lines)
    space = max(0, room - len(pinned))
    line_of = next((n for n, (_, item) in enumerate(scrolled) if item is not None and item is picked), 0)
    begin = max(0, min(line_of - space + 1 + AHEAD, len(scrolled) - space))
    return [
        mark_line(text_of(), item is not None and item is picked, state.width)
        for text_of, item in pinned + scrolled[begin : begin + space]
    ]


def table_lines(table: Table, room: int) -> list[Line]:
    """Return the heading and the lines of a table, not drawn yet."""
    if not table.columns:
        return [(partial(draw_plain_item, item, room), item) for item in table.items]
    sizes = column_widths(table.columns, table.items, room)
    top: Line = (partial(draw_heading, table.columns, sizes), None)
    if not table.items:
        return [top, (partial(Text, table.empty, "dim"), None)]
    return [top, *((partial(draw_line, table.columns, sizes, item.cells), item) for item in table.items)]


def draw_plain_item(item: Item, room: int) -> Text:
    """Return the text of a line that belongs to no table."""
    (cell,) = item.cells
    return cell if isinstance(cell, Text) else cell(room)


def mark_line(text: Text, picked: bool, width: int) -> Text:
    """Return the line, one screen wide, with the mark of the selected line if it is selected."""
    line_text = fit_text(Text("> " if picked else "  ").append_text(text), width)
    if picked:
        line_text.stylize("reverse")
    return line_text


def run_lines(state: State, look: Look, room: int) -> list[Text]:
    """Return a run's facts and the end of its output; when scrolled, both from one line on."""
    facts, output = run_blocks(look)
    if state.scroll is None:
        kept = output[-max(room // 3, room - len(facts)) :] if room else []
        shown = [*facts[: room - len(kept)], *kept]
    else:
        everything = [*facts, *output]
        shown = everything[min(state.scroll, max(0, len(everything) - room)) :][:room]
    return [mark_line(draw_plain_item(item, max(1, state.width - MARK)), False, state.width) for item in shown]


def run_blocks(look: Look) -> tuple[list[Item], list[Item]]:
    """Return the facts of a run, and its output under a heading."""
    output = details.run_output(look)
    title = plain_item("output" if output else "it has printed nothing that is kept", "bold")
    return details.run_facts(look), [title, *output]


def count_run_lines(state: State) -> int:
    """Return the number of lines of a run's page; 0 until it is read."""
    look = state.current_look
    return sum(map(len, run_blocks(look))) if look is not None and look.refused is None else 0


def body_height(state: State) -> int:
    """Return the number of lines between header and footer."""
    return max(0, state.height - len(header.header(state)) - 1)
