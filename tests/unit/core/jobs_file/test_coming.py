"""The slots before and after a change, and what changes of the clocks do to them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from pgsched.core.jobs_file import coming
from pgsched.core.jobs_file.coming import Calendars, Foresight, Slots, calendars_of, clock_changes
from pgsched.core.jobs_file.difference import Change, compare
from pgsched.core.jobs_file.model.columns import What
from pgsched.core.schedule import preview
from pgsched.core.schedule.preview import PreviewSlot
from tests.support.files.jobs_files import NOW, file_of, state_of

BERLIN = "schedule: 0 9 * * *, timezone: Europe/Berlin"  # NOW is a Friday


def change_of(text: str, before: str | None = None) -> Change:
    file = file_of(f"jobs: {{n: {text}}}")
    known = file if before is None else file_of(f"jobs: {{n: {before}}}")
    state = state_of(known, "ops") if before is not None else state_of(file_of("jobs: {}"), "ops")
    (change,) = compare(file, state, "ops").changes
    return change


def slots_of(change: Change) -> Slots | None:
    return Foresight(Calendars(), NOW).slots_of(change)


def shown(change: Change) -> tuple[list[str] | None, list[str]]:
    found = slots_of(change)
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
    found = slots_of(change)
    assert found is not None and found.differ
    assert [slot.excluded for slot in found.new] == [None, "excluded date 2026-11-29", None, None, None]


def test_a_change_that_moves_no_slot_has_none() -> None:
    assert slots_of(change_of("{task: u, schedule: 0 2 * * *}", "{task: t, schedule: 0 2 * * *}")) is None
    found = slots_of(
        change_of("{task: t, schedule: 0 2 * * *, ends_at: 2090-01-01 00:00Z}", "{task: t, schedule: 0 2 * * *}")
    )
    assert found is not None and not found.differ


def test_slots_of_several_expressions() -> None:
    assert shown(change_of("{task: t, schedule: 0 2 * * *; 0 14 * * 6; 0 2 28 * *}"))[1] == [
        "28 02:00", "28 14:00", "29 02:00", "30 02:00", "01 02:00"]  # fmt: skip


def test_a_job_that_has_run_once_does_not_run_again_in_another_zone() -> None:
    text = "{task: t, run_at: 2026-11-01 00:00Z, timezone: %s}"
    file, known = file_of(f"jobs: {{n: {text % 'Europe/Berlin'}}}"), file_of(f"jobs: {{n: {text % 'UTC'}}}")
    (change,) = compare(file, state_of(known, "ops", next_run_at=None), "ops").changes
    assert shown(change) == ([], [])


# ---- calendars


def foreseen(text: str, before: str, **facts: Any) -> tuple[list[Slots | None], dict[str, dict[str, Slots]]]:
    """Return the slots of each change, and those of jobs that only a calendar moves."""
    file, state = file_of(text), state_of(file_of(before), "ops", **facts)
    foresight = Foresight(calendars_of(file, state), NOW)
    changes = compare(file, state, "ops").changes
    changed = {change.key for change in changes}
    jobs = [one for one in state.stored.values() if one.what is What.JOB and one.key not in changed]
    return [
        foresight.slots_of(change) for change in changes if change.key[0] is What.JOB
    ], foresight.moved_by_calendars(jobs)


def days(slots: Iterable[PreviewSlot] | None) -> list[str]:
    return [f"{slot.at:%d}" + ("x" if slot.excluded else "") for slot in slots or ()]


def test_a_new_calendar_decides_about_the_slots_of_a_new_job() -> None:
    calendar = "calendars: {c: {times: [{weekdays: [sat, sun]}, {from: 2026-12-01}]}}\n"
    (skips, moves), _ = foreseen(
        f"{calendar}jobs:\n  a: {{task: t, {BERLIN}, calendar: c}}\n"
        f"  b: {{task: t, {BERLIN}, calendar: c, on_excluded: next_business_day}}",
        "jobs: {}",
    )
    assert skips is not None and moves is not None
    assert days(skips.new) == ["28x", "29x", "30", "01x", "02"]
    assert days(moves.new) == ["30", "02", "03", "04", "07"]


def test_a_changed_calendar_moves_slots_of_jobs_that_do_not_change() -> None:
    jobs = (f"jobs:\n  skips: {{task: t, {BERLIN}, calendar: c}}\n  other: {{task: t, {BERLIN}, calendar: d}}\n"
            f"  moves: {{task: t, {BERLIN}, calendar: c, on_excluded: previous}}\n"
            "  seldom: {task: t, schedule: 0 0 * * 3, calendar: c}\n")  # fmt: skip
    text = jobs + "calendars: {c: {times: [{weekdays: [%s]}]}, d: {description: %s}}"
    changes, moved = foreseen(text % ("sat", "x"), text % ("sun", "y"))
    assert changes == [] and {name: [*found] for name, found in moved.items()} == {"c": ["skips", "moves"]}
    skips, moves = moved["c"]["skips"], moved["c"]["moves"]
    assert (days(skips.old), days(skips.new)) == (["28", "29x", "30", "01", "02"], ["28x", "29", "30", "01", "02"])
    assert (days(moves.old), days(moves.new)) == (["28", "30", "01", "02", "03"], ["29", "30", "01", "02", "03"])


def test_a_job_that_changes_has_the_old_calendar_before_and_the_new_one_after() -> None:
    job = f"jobs: {{n: {{task: %s, {BERLIN}, calendar: %s}}}}\n"
    text = job + "calendars:\n  c: {times: [{weekdays: [%s]}]}\n  d: {}"
    for after in (("u", "c", "sat"), ("t", "d", "sun")):
        (found,), moved = foreseen(text % after, text % ("t", "c", "sun"))
        assert found is not None and found.differ and moved == {}
        assert days(found.old) == ["28", "29x", "30", "01", "02"]
        assert days(found.new) == (
            ["28x", "29", "30", "01", "02"] if after[2] == "sat" else ["28", "29", "30", "01", "02"]
        )


def test_slots_that_a_calendar_has_moved_already_do_not_come_again() -> None:
    """Friday has had Saturday's slot as well: it does not run on Saturday when the calendar lets it."""
    shifts = {"at": NOW.isoformat(), "ahead": [["2026-11-28T00:00:00+00:00", "2026-11-29T00:00:00+00:00"]]}
    job = f"jobs: {{n: {{task: t, {BERLIN}, calendar: c, on_excluded: %s}}}}\n"
    text = job + "calendars: {c: {times: [{weekdays: [%s]}]}}"
    _, moved = foreseen(text % ("previous", "mon"), text % ("previous", "sat"), shifts=shifts)
    assert days(moved["c"]["n"].new) == ["29", "01", "02", "03", "04"]
    (found,), _ = foreseen(text % ("skip", "sat"), text % ("previous", "sat"), shifts=shifts)
    assert found is not None and days(found.new) == ["29", "30", "01", "02", "03"]
    # Without a calendar until now, all slots up to the mark are decided: Sunday's slot does not come on Friday.
    (found,), _ = foreseen(text % ("previous", "sat"), text % ("skip", "sat"), decided_until=NOW + timedelta(days=2))
    assert found is not None and days(found.new)[0] == "30"


def test_a_job_in_mode_shadow_has_slots_that_no_calendar_excludes() -> None:
    found = slots_of(
        change_of(f"{{task: t, {BERLIN}, mode: shadow}}", f"{{task: t, {BERLIN}, ends_at: 2090-01-01 00:00Z}}")
    )
    assert found is not None and not found.differ


def test_equal_slots_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    def counted(row: Any, count: int) -> list[PreviewSlot]:
        computed.append(row["name"] if "name" in row else row["schedule"])
        return preview.upcoming(row, count)

    monkeypatch.setattr(coming, "upcoming", counted)
    text = "jobs:\n" + "".join(f"  n{n}: {{task: t{n}, schedule: {n % 3} 2 * * *, jitter: {n}s}}\n" for n in range(30))
    changes, _ = foreseen(text, "jobs: {}")
    assert len(changes) == 30 and len(computed) == 3


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
    assert remarks("0 12 * * *; 30 2 * * *") == remarks("30 2 * * *")
