"""The pages of `pgsched top` and their parts, drawn without a terminal."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from pgsched.cli.top.frame import frame
from pgsched.cli.top.pieces import Column, Item, column_widths, draw_bar, draw_sparkline, text_of_value
from pgsched.cli.top.screen import ansi
from pgsched.cli.top.state import Trouble
from tests.support.cli.top_sample import ROWS, failed, look, problem, run, state, text, typed

FRAMES = Path(__file__).parent / "top_frames"
SIZES = [(80, 24), (120, 40)]
EVIL = "\x1b[2J\x07日本語のジョブ\u202eevil\r\nnext 👩‍👩‍👧"


# ---- whole pages


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", ROWS)
def test_each_page_equals_its_stored_frame(name: str, size: tuple[int, int]) -> None:
    """PGSCHED_TEST_FRAMES=write stores the frames as they are now."""
    shown = text(state(name, *size))
    noted = FRAMES / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("PGSCHED_TEST_FRAMES") == "write":
        noted.write_text(shown)
    assert shown == noted.read_text()


def evil(value: Any) -> Any:
    """Return the value with all texts replaced by EVIL, except those of a few columns with fixed values."""
    if isinstance(value, dict):
        kept = ("state", "run_state", "stream", "outcome", "kind", "origin")
        return {name: one if name in kept else evil(one) for name, one in value.items()}
    if isinstance(value, list):
        return [evil(one) for one in value]
    return EVIL if isinstance(value, str) else value


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("size", [*SIZES, (200, 60), (40, 12), (20, 6), (5, 3), (1, 1), (80, 2)])
def test_a_frame_fills_the_screen_exactly_whatever_text_it_shows(name: str, size: tuple[int, int]) -> None:
    rows = evil(ROWS[name])
    if name == "run":
        rows["run"][0]["attempts"] = [failed(1, EVIL)]
    seen = replace(look(name, rows=rows, findings=[problem(EVIL)] * 9), place=EVIL)
    plain = state(name, *size)
    wrong = replace(plain, look=replace(seen, page=plain.page))
    for shown in (plain, wrong, replace(plain, look=None), replace(plain, help=True)):
        lines = frame(shown)
        assert len(lines) == size[1]
        assert {cell_len(line.plain) for line in lines} == {size[0]}
        assert not any(character < " " or "\x7f" <= character < "\xa0" or character == "\u202e"
                       for line in lines for character in line.plain)  # fmt: skip


def test_the_selected_row_is_marked() -> None:
    shown, _ = typed(state("running"), "down")
    assert [line.plain.split()[1] for line in frame(shown) if line.plain.startswith(">")] == ["51"]


def test_an_unreachable_database_is_shown_with_the_age_of_the_data() -> None:
    shown = text(state(trouble=Trouble("cannot reach the database: refused", 12.2)))
    first, second, third = shown.splitlines()[:3]
    assert "THE DATABASE DOES NOT ANSWER for 12s, trying again" in first
    assert second == "cannot reach the database: refused"
    assert third.startswith("as of 12:00:00 UTC: queued 1,236")


def test_a_refused_read_is_shown_in_place_of_the_rows() -> None:
    seen = replace(look("jobs", rows={}), refused="the database role lacks a grant")
    shown = text(state("jobs", look=seen))
    assert "  the database role lacks a grant" in shown
    assert "leader web-1:77" in shown


@pytest.mark.parametrize("name", ["held", "reason", "error"])
def test_a_reason_or_error_of_only_spaces_can_be_drawn(name: str) -> None:
    """SQL may store such a reason. An exception while drawing it would end the whole screen."""
    rows = {"run": [run(50, "dead", **{name: " \n "})], "log": []}
    assert "run 50 nightly: dead" in text(replace(state("run"), look=look("run", 50, rows)))


def test_a_stretch_that_has_just_begun_is_not_drawn() -> None:
    seen = look("overview")
    begun = replace(seen.stretches[-1], until_at=seen.stretches[-1].from_at + timedelta(seconds=1), per_s=5000.0)
    shown = text(state(look=replace(seen, stretches=(*seen.stretches[:-1], begun))))
    assert "most 58/s" in shown
    assert "5e+03" not in shown


def test_a_new_page_shows_no_data_that_was_read_for_another_page() -> None:
    shown, _ = typed(state("overview"), "2")
    assert "reading ..." in text(shown)
    assert "healthy" in text(shown).casefold()


def test_the_variable_no_color_turns_colours_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = [line for line in frame(state()) if "UNHEALTHY" in line.plain]
    assert "\x1b[1;31m" in ansi(lines)[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1m" in ansi(lines)[0]
    assert "\x1b[1;31m" not in ansi(lines)[0]


# ---- parts of a page


def test_a_sparkline_draws_a_gap_unlike_zero() -> None:
    assert draw_sparkline([None, 0.0, 1.0, 4.0, 8.0], 5) == " ▁▂▅█"


def test_a_sparkline_shows_the_newest_values_aligned_right() -> None:
    assert draw_sparkline([8.0, 0.0, 8.0], 2) == "▁█"
    assert draw_sparkline([8.0], 3) == "  █"
    assert draw_sparkline([], 3) == "   "
    assert draw_sparkline([1.0], 0) == ""


def test_a_bar_is_never_longer_than_its_width() -> None:
    assert [draw_bar(share, 4) for share in (-1, 0, 0.5, 1, 7)] == ["░░░░", "░░░░", "██░░", "████", "████"]


def test_columns_fill_the_width_exactly() -> None:
    columns = (Column("A"), Column("B", 6), Column("C"), Column("D", 5, min_screen=60))
    for width in range(20, 100):
        sizes = column_widths(columns, [Item((text_of_value("x" * 50),) * 4)], width)
        shown = [size for size in sizes if size]
        assert sum(shown) + len(shown) - 1 == width
        assert (sizes[3] > 0) == (width >= 60)
