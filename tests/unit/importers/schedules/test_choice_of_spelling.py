"""Which spelling of a schedule does what its source does where clocks change."""

from __future__ import annotations

import pytest

from pgsched.importers.schedules.fields import Fields
from pgsched.importers.schedules.spellings import Choice, Rule, choose_spelling
from tests.support.importing.slots import NOW

CELERY, APSCHEDULER, PG_CRON = Rule(True, False), Rule(True, True), Rule(False, True)
EVERY_HOUR = range(24)


def fields(minutes: object, hours: object) -> Fields:
    return Fields(frozenset(minutes), frozenset(hours))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("rule", "minutes", "hours", "expected"),
    [
        (PG_CRON, [30], [2], "*/60 30 2 * * *"),
        (PG_CRON, range(0, 60, 5), EVERY_HOUR, "*/5 * * * *"),
        (PG_CRON, [0], [9, 17], "0 9,17 * * *"),
        (CELERY, [0], [2], "0 2 * * *"),
        (CELERY, range(0, 60, 20), EVERY_HOUR, "0-40/20 0-23 * * *"),
        (CELERY, [0], range(0, 24, 2), "0 0-22/2 * * *"),
        (APSCHEDULER, [0], [2], "0 2 * * *; */60 0 2 * * *"),
        (APSCHEDULER, [30], EVERY_HOUR, "30 * * * *"),
    ],
)
def test_the_spelling_that_has_the_slots_of_the_source_is_chosen(
    rule: Rule, minutes: object, hours: object, expected: str
) -> None:
    found = choose_spelling(fields(minutes, hours), "Europe/Berlin", rule, NOW)
    assert found is not None
    assert (found.expression, found.differs) == (expected, None)


@pytest.mark.parametrize("rule", [CELERY, APSCHEDULER, PG_CRON])
@pytest.mark.parametrize("timezone", ["UTC", "Asia/Tokyo", "Etc/GMT+5"])
def test_where_clocks_never_change_it_is_the_usual_one(rule: Rule, timezone: str) -> None:
    assert choose_spelling(fields([30], [2]), timezone, rule, NOW) == Choice("30 2 * * *", "30 2 * * *")


def test_what_differs_is_said_with_the_day_and_both_times() -> None:
    found = choose_spelling(fields([30], [2]), "Europe/Berlin", CELERY, NOW)
    assert found == Choice("30 2 * * *", "30 2 * * *", "on 2027-03-28 there at 03:30 CEST, here at 03:00 CEST")


def test_a_run_that_the_source_leaves_out_is_said() -> None:
    found = choose_spelling(fields([30], EVERY_HOUR), "Europe/Berlin", CELERY, NOW)
    assert found is not None
    assert found.differs == "on 2026-10-25 there not, here at 02:30 CET"


def test_days_without_an_expression_give_no_choice() -> None:
    friday_13 = Fields(frozenset({0}), frozenset({0}), days=frozenset({13}), weekdays=frozenset({5}))
    assert choose_spelling(friday_13, "UTC", CELERY, NOW) is None
