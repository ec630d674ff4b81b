"""The model of a file: defaults, checks, and errors that name file, line and path."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from pgsched.core.jobs_file.model.columns import JOB, What
from pgsched.core.jobs_file.model.dates import CalendarTime, Dates
from pgsched.core.jobs_file.model.spans import read_span
from pgsched.errors import InputError
from tests.support.files.jobs_files import file_of

EXAMPLE = """\
owner: ops
defaults: {timezone: Europe/Berlin, timeout: 90}
x-shared: &shared {env: {A: "1"}}
jobs:
  load: {task: load}
  nightly:
    schedule: "0 2 * * *"
    kind: shell
    task: ./report.sh
    args: *shared
    after: [load, load]
    excluded_dates: ["2026-12-24..2026-12-26: Christmas: all", "2027-01-01"]
    calendar: holidays
    keep: 7d
    timezone: UTC
queues: {mail: {max_depth: 1000, rate: 100/m, rate_burst: 5}}
limits: {customer: {concurrency: 2}}
pauses: [{what: queue, name: mail, reason: migration}, {what: all}]
calendars:
  holidays: {times: [{from: 2026-12-25, until: 2026-12-26, reason: Christmas}, {weekdays: [Saturday, 0]},
                     {from_time: "00:00", until_time: "06:30"}, {from_time: 18:00, until_time: "24:00"}]}
retention: {keep: {any: 9 days}}
alerts: {alert_after_failures: 3, finish_by: 12 hours, expect_every: 0, alert_to: [mail, on-call], dead_runs: 20}
"""


def test_every_section_is_read() -> None:
    file = file_of(EXAMPLE)
    assert file.owner == "ops"
    assert [f"{what} {name}" for what, name in file.entries] == [
        "job load", "job nightly", "queue mail", "limit customer", "pause queue mail", "pause all", "calendar holidays",
        "retention everything", "alerts everything"]  # fmt: skip
    job = file.entries[What.JOB, "nightly"]
    assert job.values["args"].value == {"env": {"A": "1"}}
    assert job.values["after"] == ("load",)
    assert job.values["excluded_dates"] == (
        Dates(date(2026, 12, 24), date(2026, 12, 26), "Christmas: all"),
        Dates(date(2027, 1, 1), date(2027, 1, 1), None),
    )
    assert (job.values["timezone"], job.values["timeout"]) == ("UTC", read_span("90s"))
    assert job.values["keep"] == {"any": read_span("7 days")}
    assert (job.path_of("timeout"), job.path_of("timezone")) == (
        ("defaults", "timeout"),
        ("jobs", "nightly", "timezone"),
    )
    assert job.values["overlap"] == JOB["overlap"].default == "skip"
    assert file.entries[What.JOB, "load"].values["timezone"] == "Europe/Berlin"
    queue = file.entries[What.QUEUE, "mail"].values
    assert (queue["rate"], queue["rate_period"], queue["rate_burst"]) == (100, read_span("1 minute"), 5)
    assert file.entries[What.CALENDAR, "holidays"].values["times"] == (
        CalendarTime(None, None, None, "00:00:00", "06:30:00", None),
        CalendarTime(None, None, None, "18:00:00", "24:00:00", None),
        CalendarTime(None, None, (0, 6), None, None, None),
        CalendarTime(date(2026, 12, 25), date(2026, 12, 26), None, None, None, "Christmas"),
    )
    alerts = file.entries[What.ALERTS, "everything"].values
    assert (alerts["finish_by"], alerts["expect_every"], alerts["max_lateness"]) == (
        read_span("12 hours"), read_span("0"), None)  # fmt: skip
    assert (alerts["alert_to"], alerts["dead_runs"], alerts["dead_runs_within"]) == (
        ("mail", "on-call"), 20, read_span("1 hour"))  # fmt: skip


def test_toml_says_the_same_with_its_own_dates() -> None:
    file = file_of("""
[jobs.n]
task = "t"
starts_at = 2027-01-01T00:00:00+01:00
excluded_dates = [2026-12-25]
[[calendars.c.times]]
from = 2026-12-25
[[calendars.c.times]]
from_time = 07:00:00
until_time = 08:00:00
""", "jobs.toml")  # fmt: skip
    job = file.entries[What.JOB, "n"].values
    assert job["starts_at"] == datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert job["excluded_dates"] == (Dates(date(2026, 12, 25), date(2026, 12, 25), None),)
    assert len(file.entries[What.CALENDAR, "c"].values["times"]) == 2


def test_null_is_the_default_of_the_database() -> None:
    job = file_of("defaults: {timeout: 5s, overlap: allow}\njobs: {n: {task: t, timeout: null, overlap: ~}}")
    assert {job.entries[What.JOB, "n"].values[column] for column in ("timeout", "overlap")} == {None, "skip"}


WRONG = [
    ("", "jobs.yaml: is empty; a file without jobs says `jobs: {}`"),
    ("[]", "jobs.yaml: expected a mapping of names and values"),
    ("job: {}", "jobs.yaml:1: job: there is no such section; did you mean jobs?"),
    ("owner: [a]", "jobs.yaml:1: owner: expected text"),
    ("jobs:\n  n:\n    shedule: '@daily'\n    task: t",
     "jobs.yaml:3: jobs.n.shedule: there is no such column; did you mean schedule?"),
    ("jobs: {n: {task: t, after_jobs: [1]}}", "jobs.n.after_jobs: there is no such column; did you mean after?"),
    ("jobs: {n: {task: t, name: m}}", "jobs.n.name: there is no such column"),
    ("jobs: {n: {task: t, overlap: drop}}", 'jobs.n.overlap: "drop" is not one of allow, skip,'),
    ("jobs: {n: {task: t, overlap: skp}}", "did you mean skip?"),
    ("jobs: {n: {task: t, priority: 11}}", "jobs.n.priority: 11 is out of range 0-9"),
    ("jobs: {n: {task: t, priority: high}}", 'jobs.n.priority: expected a whole number, got "high"'),
    ("jobs: {n: {task: t, paused: yes}}", 'jobs.n.paused: expected true or false, got "yes"'),
    ("jobs: {n: {task: 5}}", "jobs.n.task: expected text, got 5: put it into quotes"),
    ("jobs: {n: {kind: shell}}", "jobs.yaml:1: jobs.n: task: must be given"),
    ("jobs: {n: {task: t, timeout: soon}}", 'jobs.n.timeout: "soon" is not a length of time such as 90s'),
    ("jobs: {n: {task: t, timeout: 11 years}}", "jobs.n.timeout: 11 years is out of range"),
    ("jobs: {n: {task: t, schedule: 0 25 * * *}}", "jobs.n.schedule: hour: 25 is out of range 0-23"),
    ("jobs: {n: {task: t, schedule: 0 0 30 2 *}}", "jobs.n.schedule: never fires"),
    ("defaults: {timezone: Europe/Berln}\njobs:\n  n: {task: t, schedule: 0 2 * * *}",
     'jobs.yaml:1: defaults.timezone: "Europe/Berln" is not a known IANA zone; did you mean Europe/Berlin'),
    ("jobs: {n: {task: t, run_at: tomorrow}}", 'jobs.n.run_at: "tomorrow" is not a time such as'),
    ("jobs: {n: {task: t, run_at: 2026-12-24 12:00}}", "has no offset"),
    ("jobs: {n: {task: t, args: 5}}", "jobs.n.args: expected a mapping or a list"),
    ("jobs: {n: {task: t, after: [n]}}", "jobs.n.after: a job cannot wait for itself"),
    ("jobs: {n: {task: t, after: load}}", 'jobs.n.after: expected a list, got "load"'),
    ("jobs: {n: {task: t, success_codes: []}}", "jobs.n.success_codes: is empty"),
    ("jobs: {n: {task: t, success_codes: [256]}}", "256 is out of range 0-255"),
    ("jobs: {n: {task: t, keep: {lost: 7d}}}", 'jobs.n.keep: "lost" is not one of succeeded,'),
    ("jobs: {n: {task: t, excluded_dates: [2026-13-01]}}",
     'jobs.n.excluded_dates: "2026-13-01" is not DATE or DATE..DATE'),
    ("jobs: {n: {task: t, excluded_dates: ['2026-01-01', '2026-01-01..2026-01-02']}}",
     "2026-01-01 begins two stretches"),
    ("jobs: {' n': {task: t}}", 'name: must not begin or end with a space'),
    ("jobs: {n: [t]}", "jobs.n: expected a mapping"),
    ("defaults: {after: [a]}\njobs: {}", "defaults.after: is for each job by itself"),
    ("queues: {q: {rate: 5}}", "queues.q: rate_period: rate and rate_period go together; or write it as 100/m"),
    ("queues: {q: {rate: 5/x}}", 'queues.q.rate: "5/x" is not N/PERIOD'),
    ("limits: {'job:1': {concurrency: 1}}", "job is kept for the limits that jobs have"),
    ("limits: {l: {rate_burst: 1}}", "limits.l.rate_burst: needs a rate"),
    ("limits: {l: {concurency: 1}}", "did you mean concurrency?"),
    ("pauses: {queue: q}", "jobs.yaml:1: pauses: expected a list"),
    ("pauses: [{what: limit, name: x}]", 'pauses[0].what: "limit" is not one of all, queue, task'),
    ("pauses: [{what: queue}]", "pauses[0]: name: which queue?"),
    ("pauses: [{what: all, name: x}]", "everything has no name"),
    ("pauses: [{what: all}, {what: all}]", "pauses[1]: is declared twice"),
    ("calendars: {c: {times: [{}]}}", "says neither dates nor weekdays nor times of the day"),
    ("calendars: {c: {times: [{until: 2026-01-01}]}}", "until needs from"),
    ("calendars: {c: {times: [{weekdays: [x]}]}}", 'weekdays: "x" is not one of sun, mon'),
    ("calendars: {c: {times: [{from_time: '08:00'}]}}", "from_time and until_time go together"),
    ("calendars: {c: {times: [{form: 2026-01-01}]}}", "did you mean from?"),
    ("retention: {keep_minutes: 5s}", "retention.keep_minutes: 5 seconds is out of range: from 1 hour to 10 years"),
    ("calendars: {c: {times: [{from_time: '08:00', until_time: '24:01'}]}}", '"24:01" is not a time of the day'),
    ("calendars: {c: {times: [{from_time: '24:00', until_time: '24:00'}]}}", "is not later than from_time, 24:00"),
    ("calendars: {c: {times: [{weekdays: [sun], reason: ''}]}}", "calendars.c.times: must not be empty"),
    ("calendars: {c: {times: [" + ", ".join(f"{{from_time: '00:{n:02}', until_time: '0{h}:00'}}" for n in range(60)
                                          for h in (1, 2)) + "]}}", "120 times repeat: have weekdays or hours"),
    ("jobs: {n: {task: t, shifts: {}}}", "jobs.n.shifts: there is no such column"),
    ("jobs: {n: {task: t, resumed_at: 2027-01-01 00:00Z}}", "jobs.n.resumed_at: there is no such column"),
    ("jobs: {n: {task: t, schedule: '0 2 * * *; @every 5m'}}", "jobs.n.schedule: "),
    ("jobs: {n: {task: t, alert_to: [Mail]}}", 'jobs.n.alert_to: "Mail" is no name of 1-63 characters a-z'),
    ("jobs: {n: {task: t, finish_by: 06:00}}", 'finish_by: "06:00" is a time of the day: give a length'),
    ("alerts: {finish_by: '6:00'}", 'alerts.finish_by: "6:00" is a time of the day'),
    ("jobs: {n: {task: t, finish_by: 10ms}}", "0.01 seconds is out of range: from 1 second to 10 years, or 0"),
    ("alerts: {pause_after_failures: 5}", "alerts.pause_after_failures: there is no such column"),
    ("alerts: {dead_runs: 0}", "alerts.dead_runs: 0 is out of range 1-10000"),
    ("alerts: {dead_runs_within: 32 days}", "alerts.dead_runs_within: 32 days is out of range"),
    ("alerts: [mail]", "alerts: expected a mapping"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), WRONG, ids=[f"{at} {text[:50]}" for at, (text, _) in enumerate(WRONG)])
def test_what_is_wrong_is_said_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(InputError) as refusal:
        file_of(text)
    said = str(refusal.value)
    assert problem in said
    assert said.startswith("jobs.yaml") and "\n" not in said


@pytest.mark.parametrize(
    ("column", "value"),
    [("description", "x" * 65_537), ("queue", "x" * 101), ("tags", ["x"] * 101), ("tags", ["x" * 201]),
     ("schedule", "x" * 5000), ("args", {"a": "x" * 1_048_577}), ("args", {"a": "\0"}), ("description", "a\0b"),
     ("queue", "a\nb"), ("max_runs", 2**31)],
)  # fmt: skip
def test_values_are_bounded(column: str, value: Any) -> None:
    from pgsched.core.jobs_file.model.loading import load
    from pgsched.core.jobs_file.texts.document import Document

    with pytest.raises(InputError, match=f"jobs.n.{column}: "):
        load(Document("j", {"jobs": {"n": {"task": "t", column: value}}}, {}))


def test_the_defaults_of_all_jobs_together_are_bounded() -> None:
    jobs = "".join(f"  n{n}: {{task: t}}\n" for n in range(1100))
    with pytest.raises(
        InputError, match=r"^jobs\.yaml:1: defaults: are more than 64 MiB of text, for all jobs together"
    ):
        file_of(f"defaults: {{description: {'x' * 65_000}}}\njobs:\n{jobs}")


def test_times_of_the_day_on_one_date_are_bounded() -> None:
    def calendar(times: int) -> str:
        dates = "from: 2027-01-0{}, until: 2027-01-03"
        clocks = [f"from_time: '00:{n % 60:02}:{n // 60}0', until_time: '24:00'" for n in range(times)]
        found = [f"{{{dates.format(1 + n % 3)}, {clock}}}" for n, clock in enumerate(clocks)]
        return f"calendars: {{c: {{times: [{', '.join(found)}]}}}}"

    assert len(file_of(calendar(100)).entries) == 1
    with pytest.raises(InputError, match="101 times of the day on one date; at most 100 are allowed"):
        file_of(calendar(101))


def test_numbers_are_compared_as_jsonb_does() -> None:
    """jsonb has the digits that the text has: 6.02e23 is 602 with 21 zeros, and the nearest binary number is not."""
    (one,) = file_of("jobs: {n: {task: t, args: {n: 6.02e23}}}").entries.values()
    (other,) = file_of(f"jobs: {{n: {{task: t, args: {{n: 602{'0' * 21}}}}}}}").entries.values()
    assert one.values["args"] == other.values["args"]
