"""Calendars are shared: everybody may use and read them, and only their owners and operators change them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.core.calendars.times import CalendarTime
from pgsched.db.queries.jobs import jobs
from pgsched.errors import InputError, NotPermitted
from pgsched.services.jobs import shared_calendars as shared
from tests.support.logins import Logins, not_refused, one

pytestmark = [pytest.mark.pg14]


def test_a_producer_uses_the_calendars_of_others_and_changes_its_own(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    """The row policies decide: without them the grants would let each producer change each calendar."""
    alice, bob, ops = logins.connect("alice"), logins.connect("bob"), logins.connect("ops")
    assert shared.add_times(bob, "bobs", [CalendarTime(weekdays=(0, 6))]) == (True, 1)
    alice.execute("INSERT INTO jobs (name, schedule, task, calendar) VALUES ('hers', '@daily', 't', 'bobs')")
    (times,) = jobs.show_planned_job(alice, "hers")["calendar_times"]
    assert times == ("bobs", None, None, (0, 6), None, None, None)
    with pytest.raises(NotPermitted, match='permission denied: calendar "bobs" belongs to role'):
        shared.add_times(alice, "bobs", [], "hers now")
    own = "INSERT INTO calendar_times (calendar, from_date) VALUES ('bobs', '2030-01-01')"
    assert not_refused(alice, own, "SELECT delete_calendar('bobs')", "SELECT remove_calendar_times('bobs', '{1}')",
                       "DELETE FROM calendars", "DELETE FROM calendar_times",
                       "UPDATE calendars SET name = 'x'") == {}  # fmt: skip
    for statement in ("UPDATE calendars SET description = 'x'", "UPDATE calendar_times SET weekdays = '{1}'"):
        assert alice.execute(statement.encode()).rowcount == 0
        assert not_refused(logins.connect("eye"), statement) == {}
    with db.transaction(force_rollback=True):
        db.execute("DROP POLICY pgsched_own ON pgsched.calendar_times; CREATE POLICY pgsched_own ON"
                   " pgsched.calendar_times TO pgsched_producer USING (true) WITH CHECK (true)")  # fmt: skip
        with db.transaction():
            db.execute(f'SET LOCAL ROLE "{logins.name("alice")}"'.encode())
            db.execute(own.replace("calendar_times", "pgsched.calendar_times").encode())
    assert shared.remove_times(bob, "bobs", CalendarTime(weekdays=(0, 6))) == [CalendarTime(weekdays=(0, 6))]
    with pytest.raises(InputError, match="calendar: jobs use it"):
        shared.delete_calendar(bob, "bobs")
    assert shared.add_times(ops, "bobs", [CalendarTime(weekdays=(1,))], "seen by operators") == (False, 1)
    alice.execute("UPDATE jobs SET calendar = NULL")
    shared.delete_calendar(bob, "bobs")
    assert one(db, "SELECT count(*) FROM pgsched.calendar_times") == 0
