"""Each slot up to now is decided once, by the catch-up policy, in a few rows however long the outage was."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.planning.catchup import BATCH, CatchUp, Decision, decide
from pgsched.core.policies import CATCH_UP
from pgsched.core.schedule.cron import parse
from tests.support.timing import took

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
HOURLY = parse("0 * * * *")
LATEST = CatchUp("latest", misfire_after=MINUTE, window=DAY, max_runs=10, start_deadline=None)
SKIP, EARLIEST, ALL = (replace(LATEST, policy=policy) for policy in ("skip", "earliest", "all"))


def at(hour: int, day: int = 15) -> datetime:
    return datetime(2026, 6, day, hour, tzinfo=UTC)


def verdicts(decisions: list[Decision]) -> list[tuple[str, int, int | None]]:
    """Return each decision's verdict, the hour of its slot, and how many slots its row stands for."""
    return [(d.verdict, d.scheduled_at.hour, d.covers_count) for d in decisions]


def test_a_slot_on_time_runs_without_a_reason() -> None:
    decisions, mark, following = decide(HOURLY, at(11), NOON + MINUTE / 2, LATEST)
    assert decisions == [Decision(NOON, "run", None, None, None, None)]
    assert (mark, following) == (NOON, at(13))


def test_a_slot_exactly_as_old_as_misfire_after_is_on_time() -> None:
    assert decide(HOURLY, at(11), NOON + MINUTE, LATEST)[0][0].reason is None
    assert decide(HOURLY, at(11), NOON + MINUTE + timedelta(microseconds=1), LATEST)[0][0].reason == "late"


def test_without_a_due_slot_nothing_is_decided() -> None:
    assert decide(HOURLY, NOON, NOON + HOUR / 2, LATEST) == ([], NOON, at(13))


def test_a_clock_that_stepped_back_never_lowers_the_mark() -> None:
    assert decide(HOURLY, NOON, NOON - DAY, LATEST) == ([], NOON, at(13))


def test_a_fixed_delay_has_nothing_to_catch_up() -> None:
    assert decide(parse("@after 10m"), NOON - DAY, NOON, LATEST) == ([], NOON - DAY, None)


def test_latest_runs_the_newest_late_slot_for_all_of_them() -> None:
    decisions, mark, following = decide(HOURLY, at(6), at(11) + HOUR / 2, LATEST)
    assert decisions == [Decision(at(11), "run", "late, runs once for 5 slots", at(7), at(11), 5)]
    assert (mark, following) == (at(11), NOON)


def test_latest_also_runs_the_slots_on_time() -> None:
    assert verdicts(decide(HOURLY, at(6), NOON, LATEST)[0]) == [("run", 11, 5), ("run", 12, None)]


def test_skip_leaves_one_row_for_the_whole_stretch() -> None:
    decisions, mark, _ = decide(HOURLY, at(6), NOON, SKIP)
    assert decisions[0] == Decision(at(11), "missed", "late, and the catch-up policy is skip", at(7), at(11), 5)
    assert verdicts(decisions[1:]) == [("run", 12, None)]
    assert mark == NOON


def test_earliest_runs_the_oldest_slot_and_one_row_stands_for_the_rest() -> None:
    decisions, _, _ = decide(HOURLY, at(6), NOON, EARLIEST)
    assert verdicts(decisions) == [("run", 7, None), ("missed", 11, 4), ("run", 12, None)]
    assert (decisions[1].covers_from, decisions[1].covers_until) == (at(8), at(11))


def test_all_runs_every_late_slot_oldest_first() -> None:
    found = verdicts(decide(HOURLY, at(6), NOON, ALL)[0])
    assert found == [("run", hour, None) for hour in range(7, 13)]


def test_all_stops_at_max_runs() -> None:
    decisions, _, _ = decide(HOURLY, at(6), NOON, replace(ALL, max_runs=2))
    assert verdicts(decisions) == [("run", 7, None), ("run", 8, None), ("missed", 11, 3), ("run", 12, None)]
    assert decisions[2].reason == "more than 2 late slots"


INSIDE = {
    "latest": [("run", 11, 3)],
    "skip": [("missed", 11, 3)],
    "earliest": [("run", 9, None), ("missed", 11, 2)],
    "all": [("run", hour, None) for hour in (9, 10, 11)],
}


@pytest.mark.parametrize("policy", CATCH_UP)
def test_no_policy_looks_beyond_the_window(policy: str) -> None:
    decisions, _, _ = decide(HOURLY, at(0), NOON, replace(LATEST, policy=policy, window=3 * HOUR))
    assert verdicts(decisions) == [("missed", 8, 8), *INSIDE[policy], ("run", 12, None)]
    assert decisions[0].reason == "outside catch_up_window"


@pytest.mark.parametrize("policy", CATCH_UP)
def test_a_window_that_holds_no_late_slot_leaves_one_row(policy: str) -> None:
    decisions, _, _ = decide(HOURLY, at(0), NOON + HOUR / 2, replace(LATEST, policy=policy, window=MINUTE))
    assert verdicts(decisions) == [("missed", 12, 12)]


def test_a_passed_deadline_is_the_reason_also_outside_the_window() -> None:
    policy = replace(LATEST, window=3 * HOUR, start_deadline=6 * HOUR)
    rows = decide(HOURLY, at(0), NOON, policy)[0]
    assert [(row.reason, row.covers_count) for row in rows[:2]] == [
        ("start_deadline passed", 5), ("outside catch_up_window", 3)
    ]  # fmt: skip


def test_policy_all_runs_max_runs_slots_even_beyond_one_batch() -> None:
    policy = replace(ALL, max_runs=4000, window=2 * DAY)
    rows = decide(parse("@every 10s", anchor=NOON - DAY), NOON - DAY, NOON, policy)[0]
    assert sum(row.verdict == "run" and row.reason == "late" for row in rows) == 4000
    assert sum(row.covers_count or 1 for row in rows) == 8640


def test_no_slot_follows_ends_at_and_lateness_is_measured_from_now() -> None:
    decisions, mark, following = decide(HOURLY, at(6), NOON, LATEST, ends_at=at(9))
    assert (verdicts(decisions), mark, following) == ([("run", 9, 3)], at(9), None)
    assert decide(HOURLY, at(6), NOON, LATEST, ends_at=at(9) - MINUTE)[1:] == (at(8), None)
    assert decide(HOURLY, at(6), at(8), LATEST, ends_at=at(9))[2] == at(9)
    assert decide(HOURLY, at(9), NOON, LATEST, ends_at=at(9)) == ([], at(9), None)


@pytest.mark.parametrize("policy", CATCH_UP)
def test_a_slot_past_its_start_deadline_never_runs(policy: str) -> None:
    decisions, _, _ = decide(HOURLY, at(6), NOON, replace(LATEST, policy=policy, start_deadline=2 * HOUR))
    assert (decisions[0].verdict, decisions[0].reason) == ("missed", "start_deadline passed")
    assert (decisions[0].covers_from, decisions[0].covers_until, decisions[0].covers_count) == (at(7), at(9), 3)
    assert all(d.scheduled_at >= at(10) for d in decisions[1:])


def test_a_start_deadline_below_the_misfire_limit_holds_for_slots_on_time() -> None:
    policy = replace(LATEST, misfire_after=DAY, start_deadline=HOUR)
    assert verdicts(decide(HOURLY, at(9), NOON, policy)[0]) == [("missed", 10, 1), ("run", 11, None), ("run", 12, None)]


def test_slots_on_time_beyond_one_batch_are_decided_over_several_calls() -> None:
    policy, mark, seen = replace(LATEST, misfire_after=DAY), NOON - HOUR, []
    for _ in range(4):
        decisions, mark, following = decide(parse("* * * * * *"), mark, NOON, policy)
        assert len(decisions) <= BATCH
        seen += [decision.scheduled_at for decision in decisions]
    assert seen == [NOON - HOUR + timedelta(seconds=n) for n in range(1, 3601)]
    assert following == NOON + timedelta(seconds=1)


@pytest.mark.parametrize("policy", CATCH_UP)
@pytest.mark.parametrize("expression", ["* * * * * *", "@every 1s"])
def test_two_weeks_of_seconds_cost_milliseconds_and_a_bounded_number_of_rows(expression: str, policy: str) -> None:
    schedule = parse(expression, "Europe/Berlin")
    ask = lambda: decide(schedule, NOON - 14 * DAY, NOON, replace(LATEST, policy=policy))  # noqa: E731
    assert took(ask) < 0.25  # takes about 0.01 s; the bound allows for a loaded machine
    decisions, mark, following = ask()
    assert len(decisions) <= 61 + LATEST.max_runs + 2
    assert sum(decision.covers_count or 1 for decision in decisions) == 14 * 24 * 3600
    assert (mark, following) == (NOON, NOON + timedelta(seconds=1))


def test_a_stretch_too_long_to_count_is_reported_as_very_many_slots() -> None:
    decision = decide(HOURLY, NOON - 5000 * DAY, NOON + HOUR / 2, replace(LATEST, window=6000 * DAY))[0][0]
    assert (decision.covers_count, decision.covers_until) == (None, NOON)
    assert decision.reason == "late, runs once for very many slots"


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match='catch-up policy "never" is not one of latest, skip, earliest, all'):
        decide(HOURLY, at(6), NOON, replace(LATEST, policy="never"))


spans = st.timedeltas(timedelta(0), 4 * DAY)


@settings(deadline=None)
@given(
    st.sampled_from(["0 * * * *", "*/7 2,3 * * *", "30 2 * * *", "@every 47m", "0 9 * * MON"]),
    st.builds(CatchUp, st.sampled_from(CATCH_UP), spans, spans, st.integers(0, 20), st.none() | spans),
    st.timedeltas(timedelta(0), 5 * DAY),
    st.timedeltas(-DAY, DAY),
)
def test_every_slot_is_accounted_for_exactly_once(
    expression: str, policy: CatchUp, outage: timedelta, shift: timedelta
) -> None:
    schedule, now = parse(expression, "Europe/Berlin"), datetime(2026, 3, 29, 12, tzinfo=UTC) + shift
    decisions, mark, following = decide(schedule, now - outage, now, policy)
    slots = list(schedule.between(now - outage, now))
    ranges = [
        (d.covers_from or d.scheduled_at, d.covers_until or d.scheduled_at, d.covers_count or 1) for d in decisions
    ]
    covered = [slot for first, last, _ in ranges for slot in slots if first <= slot <= last]
    assert covered == slots
    assert sum(count for *_, count in ranges) == len(slots)
    assert len({decision.scheduled_at for decision in decisions}) == len(decisions)
    assert mark == (slots[-1] if slots else now - outage)
    assert following == schedule.after(mark)
