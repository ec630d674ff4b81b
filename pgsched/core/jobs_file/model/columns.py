"""The sections of a file and their columns: each with its type, and its default in the database.

Invariant: a section has the columns that a person may set in the table behind it. tests/integration/services compares
names and defaults with the catalog. A column that a file does not name has its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pgsched.core import policies
from pgsched.core.jobs_file.model.dates import CalendarTimes, ExcludedDates
from pgsched.core.jobs_file.model.lengths import Keep, Length
from pgsched.core.jobs_file.model.spans import Span, read_span
from pgsched.core.jobs_file.model.types import (
    Arguments,
    Flag,
    Instant,
    ListOf,
    Names,
    Number,
    Prose,
    SinkName,
    Text,
    Type,
    Whole,
    Word,
    json_of,
)
from pgsched.core.model import Kind

NOTHING = Span()
MILLISECOND, SECOND = Span(microseconds=1000), Span(microseconds=1_000_000)
HOUR, DAY = Span(microseconds=3_600_000_000), Span(days=1)
BIG = 2**31 - 1
LABEL = Text(200)
MOST_PARENTS = 100


class What(StrEnum):
    """What a file can declare; the values are those of `file_entries.what`."""

    JOB = "job"
    QUEUE = "queue"
    LIMIT = "limit"
    PAUSE = "pause"
    CALENDAR = "calendar"
    RETENTION = "retention"
    ALERTS = "alerts"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, and its default as the type has it; None: null."""

    type: Type
    default: Any = None


def span(text: str) -> Span:
    """Return the length that a text says."""
    found = read_span(text)
    assert found is not None, text
    return found


def length(least: Span = NOTHING, default: str | None = None, most: str = "10 years") -> Column:
    """Return a column with a length of time."""
    return Column(Length(least, span(most)), None if default is None else span(default))


def watched() -> Column:
    """Return a column with a length of time that is watched; 0: nothing is, whatever the defaults of alerts say."""
    return Column(Length(SECOND, or_zero=True))


CODES = ListOf(Whole(0, 255), 256, 1)
RATE = {
    "rate": Column(Whole(1, BIG)),
    "rate_period": length(MILLISECOND, most="31 days"),
    "rate_burst": Column(Whole(1, BIG)),
}
# What is watched: columns of jobs, and the defaults of alerts.
WATCHED = {
    "alert_after_failures": Column(Whole(0, 1000)),
    "max_lateness": watched(),
    "max_duration": watched(),
    "expect_every": watched(),
    "finish_by": Column(Length(SECOND, or_zero=True, no_time_of_day=True)),
    "alert_to": Column(ListOf(SinkName(), 20)),
}
JOB: Mapping[str, Column] = {
    "description": Column(Prose(65_536)),
    "kind": Column(Word(tuple(map(str, Kind))), "task"),
    "task": Column(Prose(65_536)),
    "args": Column(Arguments(), json_of({})),
    "queue": Column(Text(100)),
    "priority": Column(Whole(0, 9)),
    "tags": Column(ListOf(LABEL, 100)),
    "schedule": Column(Prose(4096)),
    "timezone": Column(Prose(200), "UTC"),
    "run_at": Column(Instant()),
    "starts_at": Column(Instant()),
    "ends_at": Column(Instant()),
    "max_runs": Column(Whole(1, BIG)),
    "jitter": length(default="0s"),
    "delete_after_run": Column(Flag(), False),
    "calendar": Column(LABEL),
    "excluded_dates": Column(ExcludedDates(), ()),
    "on_excluded": Column(Word(policies.ON_EXCLUDED), "skip"),
    "overlap": Column(Word(policies.OVERLAP), "skip"),
    "max_buffer": Column(Whole(1, 100_000), 100),
    "retry_within": length(),
    "misfire_after": length(default="60s"),
    "catch_up": Column(Word(policies.CATCH_UP), "latest"),
    "max_catch_up": Column(Whole(1, 10_000), 100),
    "catch_up_window": length(default="1 day"),
    "start_deadline": length(SECOND),
    "max_attempts": Column(Whole(1, 1000)),
    "timeout": length(MILLISECOND),
    "kill_after": length(),
    "backoff": Column(Word(policies.BACKOFF)),
    "backoff_base": length(),
    "backoff_max": length(),
    "backoff_jitter": Column(Number(0, 1)),
    "success_codes": Column(CODES, (0,)),
    "retry_codes": Column(CODES),
    "dead_codes": Column(CODES),
    "concurrency_key": Column(LABEL),
    "concurrency_limit": Column(Whole(0, 1_000_000)),
    "after": Column(Names(LABEL, MOST_PARENTS), ()),
    "after_match": Column(Word(policies.AFTER_MATCH), "same"),
    "mode": Column(Word(policies.MODES), "run"),
    "paused": Column(Flag(), False),
    "paused_reason": Column(Prose(10_000)),
    "paused_by": Column(Prose(200)),
    "resume_from": Column(Word(("now", "pause")), "now"),
    "keep": Column(Keep()),
    **WATCHED,
    "pause_after_failures": Column(Whole(1, 1000)),
    "ping_url": Column(Prose(65_536)),
}
QUEUE: Mapping[str, Column] = {
    "concurrency_limit": Column(Whole(0, BIG)),
    **RATE,
    "max_depth": Column(Whole(1, 2**63 - 1)),
    "on_full": Column(Word(policies.ON_FULL), "reject"),
    "fair": Column(Flag(), False),
    "ageing": length(SECOND),
    "keep": Column(Keep()),
}
LIMIT: Mapping[str, Column] = {
    "concurrency": Column(Whole(0, BIG)),
    **RATE,
    "ordered": Column(Flag(), False),
    "weight": Column(Whole(1, 1000), 1),
}
PAUSE: Mapping[str, Column] = {"reason": Column(Prose(10_000)), "resume_at": Column(Instant())}
CALENDAR: Mapping[str, Column] = {
    "description": Column(Prose(65_536)),
    "times": Column(CalendarTimes(), ()),
}
RETENTION: Mapping[str, Column] = {
    "keep": Column(Keep(), {"any": span("7 days")}),
    "archive": Column(Flag(), False),
    "keep_minutes": length(HOUR, "3 days"),
    "keep_hours": length(DAY, "400 days", "100 years"),
    "keep_audit": length(DAY, "400 days", "1000 years"),
}
ALERTS: Mapping[str, Column] = {
    **WATCHED,
    "dead_runs": Column(Whole(1, 10_000)),
    "dead_runs_within": length(SECOND, "1 hour", "31 days"),
}
COLUMNS: Mapping[What, Mapping[str, Column]] = {
    What.JOB: JOB,
    What.QUEUE: QUEUE,
    What.LIMIT: LIMIT,
    What.PAUSE: PAUSE,
    What.CALENDAR: CALENDAR,
    What.RETENTION: RETENTION,
    What.ALERTS: ALERTS,
}
SECTIONS = {
    "jobs": What.JOB,
    "queues": What.QUEUE,
    "limits": What.LIMIT,
    "pauses": What.PAUSE,
    "calendars": What.CALENDAR,
    "retention": What.RETENTION,
    "alerts": What.ALERTS,
}
SECTION_OF = {what: section for section, what in SECTIONS.items()}
# The name of the only row behind a section that is one mapping.
SINGLE = {What.RETENTION: "everything", What.ALERTS: "everything"}
PAUSABLE = policies.PAUSED
# Columns of jobs that are left as they are where a file does not name them: operators pause and resume jobs, and let a
# job run or be a shadow. Those of the pause count only where the file pauses the job.
OPERATED = ("mode", "paused")
OF_PAUSE = ("paused_reason", "paused_by", "resume_from")
LEFT_TO_OPERATORS = OPERATED + OF_PAUSE
