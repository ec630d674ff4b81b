"""The pure functions, with random input: each answers in time, or raises an error that it documents."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from pgsched.app.codecs.annotations import describe_mismatch
from pgsched.control_characters import escape_controls
from pgsched.core import units
from pgsched.core.backoff import retry_delay
from pgsched.core.explain import SlotFacts, explain
from pgsched.core.payload import encode
from pgsched.core.planning import backfill, catchup, jitter
from pgsched.core.policies import BACKOFF, CATCH_UP
from pgsched.core.schedule import calendar, preview, zones
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.describe import describe
from pgsched.errors import InputError, ScheduleError
from tests.support.fuzz.profile import PURE, fuzz
from tests.support.fuzz.values import WORDS, documents, fields, hostile, schedules

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)
anything = st.text(max_size=40)  # with lone surrogates and NUL, which Python callers may pass
expressions = st.one_of(schedules, anything, st.lists(fields, min_size=5, max_size=6).map(" ".join))
timezones = st.one_of(st.sampled_from(WORDS["timezone"]), st.sampled_from(sorted(zones.names())), anything)
moments = st.datetimes(datetime(1970, 1, 1), datetime(8999, 1, 1), timezones=st.just(UTC))
lengths = st.timedeltas(timedelta(0), timedelta(days=3650))


def read(expression: str, timezone: str) -> Any:
    """Return the schedule; None if it is refused with an error that names the field."""
    try:
        return parse(expression, timezone, ANCHOR)
    except ScheduleError as error:
        assert str(error).startswith(f"{error.field}: ")
        assert error.reason
        return None


@fuzz(PURE, expression=expressions, timezone=timezones, at=moments)
def test_a_schedule_is_read_or_refused(expression: str, timezone: str, at: datetime) -> None:
    schedule = read(expression, timezone)
    if schedule is None:
        return
    assert describe(schedule)
    slot = schedule.after(at)
    assert slot is None or slot > at
    assert all(fire.at > at for fire in preview.next_slots(schedule, at, 2))
    counted = schedule.count(at, at + timedelta(days=2))
    assert counted is None or counted >= 0


@fuzz(
    PURE,
    expression=expressions,
    at=moments,
    late=lengths,
    policy=st.sampled_from(CATCH_UP),
    length=lengths,
    window=lengths,
    most=st.integers(1, 1000),
    deadline=st.one_of(st.none(), lengths),
)
def test_decisions_rise_and_the_mark_stays_between_start_and_now(
    expression: str,
    at: datetime,
    late: timedelta,
    policy: str,
    length: timedelta,
    window: timedelta,
    most: int,
    deadline: timedelta | None,
) -> None:
    schedule = read(expression, "Europe/Berlin")
    if schedule is None or at.year > 8900:
        return
    found = catchup.CatchUp(policy, length, window, most, deadline)
    decisions, mark, following = catchup.decide(schedule, at, at + late, found)
    slots = [decision.scheduled_at for decision in decisions]
    assert slots == sorted(set(slots))
    assert at <= mark <= at + late or not decisions
    assert following is None or following > mark


excluded = st.lists(
    st.tuples(st.dates(date(1970, 1, 1), date(8998, 1, 1)), st.integers(0, 400), st.one_of(st.none(), anything)),
    max_size=6,
)


@fuzz(PURE, rows=excluded, timezone=st.sampled_from(sorted(zones.names())), at=moments, length=lengths)
def test_a_calendar_cuts_time_into_parts(rows: Any, timezone: str, at: datetime, length: timedelta) -> None:
    closed = calendar.calendar([(first, first + timedelta(days=days), why) for first, days, why in rows], timezone)
    parts = list(closed.parts(at, at + length))
    assert [part.after for part in parts[1:]] == [part.until for part in parts[:-1]]
    if parts:
        assert (parts[0].after, parts[-1].until) == (at, at + length)
    assert closed.excluded(closed.next_allowed(at)) is None


@fuzz(
    PURE,
    value=st.one_of(
        documents,
        anything,
        st.binary(),
        st.floats(),
        st.sets(st.integers()),
        st.dictionaries(st.one_of(anything, st.integers()), documents),
    ),
)
def test_a_payload_is_json_or_is_refused(value: Any) -> None:
    try:
        text = encode(value)
    except ValueError as error:
        assert str(error)
        return
    json.loads(text)
    text.encode()
    assert "\x00" not in text


@fuzz(PURE, value=documents)
def test_a_document_is_read_as_it_was_written(value: Any) -> None:
    try:
        text = encode(value)
    except ValueError:
        return
    assert json.loads(text) == value


@fuzz(PURE, length=st.timedeltas(), other=lengths)
def test_every_duration_has_a_text(length: timedelta, other: timedelta) -> None:
    for said in (
        units.format_duration(abs(other)),
        units.format_elapsed(abs(other)),
        units.format_duration(length),
        units.format_elapsed(length),
    ):
        assert said


@fuzz(
    PURE,
    attempt=st.integers(-5, 10**6),
    backoff=st.sampled_from(BACKOFF),
    base=st.timedeltas(),
    most=lengths,
    spread=st.floats(),
    luck=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_never_beyond_its_maximum(
    attempt: int, backoff: str, base: timedelta, most: timedelta, spread: float, luck: float
) -> None:
    wait = retry_delay(attempt, backoff, base, most, spread, lambda: luck)
    assert timedelta(0) <= wait <= most


@fuzz(PURE, job=st.integers(-(2**63), 2**63 - 1), at=moments, most=lengths)
def test_jitter_is_below_its_limit(job: int, at: datetime, most: timedelta) -> None:
    moved = jitter.offset(job, at, most)
    assert timedelta(0) <= moved
    assert moved < most or moved == timedelta(0)


@fuzz(
    PURE,
    text=st.one_of(anything, moments.map(str), st.datetimes().map(lambda at: at.isoformat())),
    timezone=st.sampled_from(sorted(zones.names())),
)
def test_an_instant_is_read_or_refused(text: str, timezone: str) -> None:
    tz = zones.zone(timezone)
    try:
        found = backfill.parse_local_instant("from", text, tz)
    except InputError as error:
        assert str(error).startswith("from: ")
        return
    assert 1970 <= found.year < 9000
    backfill.describe_gap(text, tz)


hints = st.sampled_from(
    [
        int,
        str,
        float,
        bool,
        None,
        list[int],
        dict[str, int],
        list[dict[str, Any]],
        int | None,
        Any,
        tuple[int, ...],
        list[list[str]],
        dict[str, Any],
        datetime,
        bytes,
    ]
)


@fuzz(PURE, value=documents, hint=hints)
def test_a_mismatch_with_an_annotation_names_the_parameter(value: Any, hint: Any) -> None:
    found = describe_mismatch(value, hint, "x")
    assert found is None or found.startswith("x")


@fuzz(PURE, text=st.one_of(anything, hostile))
def test_escaped_text_has_no_control_characters(text: str) -> None:
    shown = escape_controls(text)
    assert all(
        character.isprintable()
        or character == " "
        or ord(character) > 0x2FFF
        or not (ord(character) < 32 or 0x7F <= ord(character) < 0xA0)
        for character in shown
    )
    shown.encode()


STATES = ["scheduled", "waiting", "queued", "running", "succeeded", "dead", "cancelled", "skipped", "missed"]
optional_moments = st.one_of(st.none(), moments)
rows = st.fixed_dictionaries(
    {
        "id": st.integers(1, 10**9),
        "state": st.sampled_from(STATES),
        "origin": st.sampled_from(["schedule", "manual", "backfill"]),
        "reason": st.one_of(st.none(), anything),
        "error": st.one_of(st.none(), anything),
        "attempt": st.integers(0, 9),
        "max_attempts": st.integers(1, 9),
        "crashes": st.integers(0, 5),
        "queue": anything,
        "created_at": moments,
        "available_at": moments,
        "scheduled_at": moments,
        "started_at": optional_moments,
        "finished_at": optional_moments,
        "covers_from": optional_moments,
        "covers_until": optional_moments,
        "covers_count": st.one_of(st.none(), st.integers(1, 10**12)),
        "expires_at": optional_moments,
        "covers_state": st.one_of(st.none(), st.sampled_from(STATES)),
        "covers_reason": st.one_of(st.none(), anything),
        "lease_until": optional_moments,
        "cancel_requested_at": optional_moments,
        "cancel_reason": st.one_of(st.none(), anything),
        "ready_at": optional_moments,
        "worker": st.one_of(st.none(), anything),
        "held_until": optional_moments,
        "attempts": st.lists(
            st.fixed_dictionaries({"error": st.one_of(st.none(), anything), "started_at": optional_moments}), max_size=3
        ),
        "task": anything,
        "kind": st.just("task"),
        "priority": st.integers(0, 9),
        "job_id": st.just(1),
        "options": st.none(),
        "concurrency_key": st.one_of(st.none(), anything),
        "backfill_id": st.none(),
        "token": st.none(),
        "result": st.none(),
    }
)


def kept(run: dict[str, Any]) -> dict[str, Any]:
    """Change a random row so that it satisfies the CHECK constraints of the table."""
    ended = run["state"] not in STATES[:4]
    run["finished_at"] = (run["finished_at"] or run["created_at"]) if ended else None
    run["started_at"] = run["started_at"] or run["created_at"] if run["state"] == "running" else run["started_at"]
    if None in (run["covers_from"], run["covers_until"]):
        run |= {"covers_from": None, "covers_until": None, "covers_count": None, "covers_state": None}
    return run


@fuzz(PURE, run=st.one_of(st.none(), rows.map(kept)), slot=moments, now=moments, asked=optional_moments)
def test_a_slot_can_be_explained(run: Any, slot: datetime, now: datetime, asked: datetime | None) -> None:
    job = {
        "id": 1,
        "name": "nightly",
        "schedule": "0 3 * * *",
        "timezone": "UTC",
        "anchor_at": ANCHOR,
        "created_at": ANCHOR,
        "decided_until": ANCHOR,
        "next_run_at": None,
        "paused": False,
        "paused_at": None,
        "paused_by": None,
        "paused_reason": None,
        "starts_at": None,
        "ends_at": None,
        "run_at": None,
        "max_runs": None,
        "run_count": 0,
        "error": None,
        "error_at": None,
        "updated_at": ANCHOR,
        "jitter": timedelta(0),
        "overlap": "skip",
        "catch_up": "latest",
        "resume_from": "now",
        "misfire_after": timedelta(minutes=1),
        "catch_up_window": timedelta(days=1),
        "start_deadline": None,
        "queue": "default",
        "max_catch_up": 100,
        "calendar": None,
    }
    nearest = None if asked is None else (slot, None)
    if run is not None and run["covers_from"] is None:
        slot = run["scheduled_at"]
    found = explain(SlotFacts(now, job, slot, asked, nearest, run))
    assert found.text
    assert found.answer
