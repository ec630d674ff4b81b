"""`{slot:...}` in texts, and the slot in its time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.schedule.slot_text import KNOWN, MOST_TOKENS, SlotWriter, fill, has_token, local_slot
from pgsched.errors import InputError, ScheduleError
from pgsched.execute.slot_tokens import fill_slot, is_unknown_zone
from tests.support.executing import claim

SLOT = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
BERLIN = local_slot(SLOT, "Europe/Berlin")


def filled(value: Any, local: datetime = BERLIN) -> Any:
    return fill("args", value, SlotWriter(local).write)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{slot:%Y-%m-%d}", "2026-03-29"),
        ("load --day={slot:%Y-%m-%d} --hour={slot:%H}", "load --day=2026-03-29 --hour=00"),
        ("{slot:%Y/%m/%d %H:%M:%S%z %Z}", "2026/03/29 00:30:00+0100 CET"),
        ("{slot:%A, %d %B %j week %V of %G}", "Sunday, 29 March 088 week 13 of 2026"),
        ("{slot:100%%}", "100%"),
        ("{slot:day %d}", "day 29"),
        ("{slot:%%A %%%A}", "%A %Sunday"),
        ("{slot:{slot:%d}}", "{slot:29}"),  # what was filled in is not read again
        ("{slot:%%Y} {slot:$(date)%%}", "%Y $(date)%"),
        ("$ {slot:%d}", "$ 29"),
    ],
)
def test_a_token_is_the_slot_in_the_jobs_zone(text: str, expected: str) -> None:
    assert filled(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "awk '{print $1}'",
        '{"a": {"slot": 1}}',
        "{slot}",
        "{slot:}",
        "{slot.year}",
        "{slot:{nested}",
        "{ slot:%Y}",
        "{Slot:%Y}",
        "{slot!r}",
        "{slot:%Y",
        "{0.__class__}",
        "${slot%Y}",
        "${slot:-blue}",
        "${slot:0:4}",
        "${slot:-%Y}",
        "{slot:day}",
    ],
)
def test_every_other_brace_is_text(text: str) -> None:
    assert filled(text) == text


@pytest.mark.parametrize("form", ["%Q", "%", "%Y-%", "%s", "%c", "%-d", "%e", "%:z", "%Y%é"])
def test_an_unknown_directive_is_refused(form: str) -> None:
    with pytest.raises(InputError) as refused:
        filled(["ok", {"k": f"{{slot:{form}}}"}])
    assert str(refused.value).startswith(f"args: {{slot:{form}}}: after %, one of these is known: a A b")
    assert refused.value.field == "args"


def test_texts_are_filled_at_any_depth_and_keys_are_not() -> None:
    value = {"{slot:%Y}": ["{slot:%d}", {"n": 1, "x": None, "deep": [["{slot:%m}"]]}], "b": True}
    assert filled(value) == {"{slot:%Y}": ["29", {"n": 1, "x": None, "deep": [["03"]]}], "b": True}
    assert has_token(value)
    assert not has_token({"a": ["{", 1, None, {"slot:": "x"}]})


def test_so_many_tokens_are_filled_and_no_more() -> None:
    assert filled("{slot:%d}" * MOST_TOKENS) == "29" * MOST_TOKENS
    with pytest.raises(InputError, match="more than 1,000 tokens"):
        filled(["{slot:%d}"] * (MOST_TOKENS + 1))


@settings(deadline=None)
@given(st.text("{}slot:%YmdQ-$ \\\"'", max_size=60))
def test_a_text_is_filled_or_refused_and_nothing_else_of_it_changes(text: str) -> None:
    try:
        found = filled(text)
    except InputError:
        return
    assert "{slot:" in text or found == text


@pytest.mark.parametrize("letter", KNOWN)
def test_each_known_directive_gives_a_short_text(letter: str) -> None:
    assert 1 <= len(filled(f"{{slot:%{letter}}}")) <= 10


class German(datetime):
    """An instant of a process whose handlers have set another locale."""

    def strftime(self, form: str) -> str:
        for directive in ("%a", "%A", "%b", "%B", "%p"):
            form = form.replace(directive, "?")
        return super().strftime(form)


@pytest.mark.parametrize("hour", [0, 11, 12, 23])
def test_names_are_english_whatever_the_locale(hour: int) -> None:
    for day in range(1, 366):
        local = datetime(2026, 1, 1, hour, tzinfo=UTC) + timedelta(days=day)
        german = German(local.year, local.month, local.day, hour, tzinfo=UTC)
        assert filled("{slot:%a %A %d. %b %B %I %p}", german) == f"{local:%a %A %d. %b %B %I %p}"


def test_the_slot_in_its_zone_is_the_same_instant() -> None:
    assert (BERLIN, BERLIN.utcoffset()) == (SLOT, timedelta(hours=1))
    assert local_slot(SLOT, None).utcoffset() == timedelta(0)
    later = local_slot(SLOT + timedelta(hours=2), "Europe/Berlin")
    assert (later.hour, later.utcoffset()) == (3, timedelta(hours=2))
    with pytest.raises(ScheduleError):
        local_slot(SLOT, "Mars/Phobos")


# ---- claims


def test_the_task_and_the_arguments_of_a_slot_are_filled() -> None:
    given = claim("command", "/srv/{slot:%d}", ["{slot:%Y}", "{x}"], scheduled_at=SLOT, slot_zone="Europe/Berlin")
    found = fill_slot(given)
    assert (found.task, found.args) == ("/srv/29", ["2026", "{x}"])
    assert fill_slot(given._replace(slot_zone=None)).task == "/srv/28"


def test_a_run_without_a_job_stays_as_it_is() -> None:
    """Its arguments are data, and may hold what looks like a token."""
    given = claim("command", "echo", ["{slot:%Q}"], job_id=None, scheduled_at=None)
    assert fill_slot(given) is given


def test_a_claim_without_a_token_is_not_copied() -> None:
    given = claim("http", "https://example.org/{id}", {"json": {"a": "{b}"}})
    assert fill_slot(given) is given


def test_a_zone_that_this_worker_does_not_know_may_be_known_to_another() -> None:
    with pytest.raises(InputError) as refused:
        fill_slot(claim("command", "echo", ["{slot:%Y}"], slot_zone="Mars/Phobos"))
    assert is_unknown_zone(refused.value)
