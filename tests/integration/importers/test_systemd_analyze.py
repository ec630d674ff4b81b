"""Calendar events against systemd itself, where `systemd-analyze` is installed: what it accepts, and its next slots."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime

import pytest

from pgsched.importers.imported import Reason
from pgsched.importers.systemd.calendar_events import EventRefused, parse_event
from pgsched.importers.systemd.timers import TimerOptions, import_timers
from pgsched.importers.systemd.units import UnitFiles
from tests.support.importing.slots import away_from_changes, imported_slots
from tests.support.importing.timer_events import EVENTS, INEXPRESSIBLE

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")]
START = datetime(2026, 3, 27, 21, 7, 30, tzinfo=UTC)
SLOT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")
ZONES = ["UTC", "Europe/Berlin", "America/New_York"]
REFUSED = ["*:*/5", "Fri..Mon", "12", "*-*-~1", "24:00", "*-*-32", "10..8:00", "*-*-31/2", "*-*~31", "*:59/2",
           "*-*~1/7", "Mon Tue", "*-*-0", "*-*~0", "*-*-* 5", "5..3/1:00", "Sun..Mon 10:00"]  # fmt: skip
ACCEPTED = ["Mon-Fri 10:00", "mon,", "*-*~1..3", "99-1-1", "12:00:00.5", "1..5:*:0/1.5", "2026-1..3/2-1", "anually",
            "*-*-1,1,2", "*:2/3", "Sat,Thu,Mon..Wed,Sat..Sun", "10-15", "monday *-12-* 17:00"]  # fmt: skip


def analyze(event: str, zone: str, count: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "calendar", f"--iterations={count}", f"--base-time=@{int(START.timestamp())}", event],
        env={**os.environ, "TZ": zone, "LC_ALL": "C"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("event", EVENTS)
def test_the_next_thousand_slots_are_those_that_systemd_shows(event: str, zone: str) -> None:
    shown = analyze(event, zone, 1000)
    theirs = [datetime.fromisoformat(one).replace(tzinfo=UTC) for one in SLOT.findall(shown.stdout)]
    texts = {"a.timer": f"[Timer]\nOnCalendar={event}\n", "a.service": "[Service]\nExecStart=/bin/true\n"}
    job = import_timers(UnitFiles(texts), TimerOptions(zone, START)).jobs[0]
    reasons = {remark.reason for remark in job.remarks}
    if Reason.REPETITION in reasons and "Infinite loop in calendar calculation" in shown.stderr:
        return  # systemd gives up on its own event where clocks change
    assert len(theirs) >= 40, shown
    ours = imported_slots(job.columns, START, len(theirs))
    if Reason.REPETITION in reasons:  # systemd may leave a slot out, and has no other ones
        ours = [slot for slot in imported_slots(job.columns, START, 2 * len(theirs)) if slot <= theirs[-1]]
        assert {*theirs} <= {*ours} and len(ours) - len(theirs) <= len(ours) / 10
        return
    if Reason.CLOCK_CHANGE in reasons:
        last = min(ours[-1], theirs[-1])
        ours, theirs = (away_from_changes([s for s in one if s <= last], zone) for one in (ours, theirs))
    assert ours == theirs


@pytest.mark.parametrize("event", [*REFUSED, *ACCEPTED, *INEXPRESSIBLE])
def test_an_event_is_refused_where_systemd_refuses_it(event: str) -> None:
    try:
        parse_event(event)
        ours = True
    except EventRefused:
        ours = False
    assert ours == (analyze(event, "UTC", 1).returncode == 0)
