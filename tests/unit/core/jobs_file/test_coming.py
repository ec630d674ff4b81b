"""The slots before and after a change, and what changes of the clocks do to them."""

from __future__ import annotations

from pgsched.core.jobs_file.coming import clock_changes, slots_of
from pgsched.core.jobs_file.difference import Change, compare
from tests.support.files.jobs_files import NOW, file_of, state_of


def change_of(text: str, before: str | None = None) -> Change:
    file = file_of(f"jobs: {{n: {text}}}")
    known = file if before is None else file_of(f"jobs: {{n: {before}}}")
    state = state_of(known, "ops") if before is not None else state_of(file_of("jobs: {}"), "ops")
    (change,) = compare(file, state, "ops").changes
    return change


def shown(change: Change) -> tuple[list[str] | None, list[str]]:
    found = slots_of(change, NOW)
    assert found is not None
    old = None if found.old is None else [f"{slot.at:%d %H:%M}" for slot in found.old]
    return old, [f"{slot.at:%d %H:%M}" for slot in found.new]


def test_slots_of_a_new_job() -> None:
    assert shown(change_of("{task: t, schedule: 0 2 * * *, timezone: Europe/Berlin}")) == (
        None, ["28 01:00", "29 01:00", "30 01:00", "01 01:00", "02 01:00"])  # fmt: skip
    assert shown(change_of("{task: t, schedule: '@every 1h', max_runs: 2}")) == (None, ["27 11:00", "27 12:00"])
    assert shown(change_of("{task: t}")) == (None, ["27 10:00"])
    assert shown(change_of("{task: t, run_at: 2026-12-24 00:00Z}")) == (None, ["24 00:00"])


def test_slots_before_and_after_a_change() -> None:
    change = change_of("{task: t, schedule: 30 3 * * *}", "{task: t, schedule: 0 2 * * *}")
    old, new = shown(change)
    assert (old is not None and old[:2], new[:2]) == (["28 02:00", "29 02:00"], ["28 03:30", "29 03:30"])
    change = change_of(
        "{task: t, schedule: 0 2 * * *, excluded_dates: ['2026-11-29']}", "{task: t, schedule: 0 2 * * *}"
    )
    found = slots_of(change, NOW)
    assert found is not None and not found.differ
    assert [slot.excluded for slot in found.new] == [None, "excluded date 2026-11-29", None, None, None]


def test_a_change_that_moves_no_slot_has_none() -> None:
    assert slots_of(change_of("{task: u, schedule: 0 2 * * *}", "{task: t, schedule: 0 2 * * *}"), NOW) is None


def test_changes_of_the_clocks_that_move_a_slot() -> None:
    def remarks(schedule: str, timezone: str = "Europe/Berlin") -> list[tuple[str, str]]:
        change = change_of(f"{{task: t, schedule: '{schedule}', timezone: {timezone}}}")
        return [(one.day, one.remark) for one in clock_changes(change, NOW)]

    assert remarks("30 2 * * *") == [
        ("2027-03-28", "moved: the wall time 02:30 does not exist"),
        ("2027-10-31", "first of two: 02:30 comes twice, and only the first counts"),
    ]
    assert remarks("30 2 * * *", "UTC") == remarks("30 4 * * *") == remarks("@every 1h") == []
    assert remarks("0 * * * *")[0] == ("2027-03-28", "left out: the wall time 02:00 does not exist")
    assert remarks("*/5 * * * *") == []  # nobody notices
