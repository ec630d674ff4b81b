"""`pgsched report`: counts, lateness and durations by job, from the runs or from the counted hours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgsched.services.report import count_above, read_report
from tests.support.cli.said import Said

Program = Callable[..., Said]
HISTORY = """
INSERT INTO pgsched.runs (task, job_id, scheduled_at, state, origin, attempt, started_at, finished_at, phase, error,
    covers_count)
SELECT 't', j.id, h.at, h.state, 'schedule', 1, h.at + h.late, h.at + h.late + h.took, h.phase, h.error, h.covers
FROM (VALUES ('good', 'succeeded', 3, '10 s', '2 s', NULL, NULL, 1),
             ('good', 'succeeded', 3, '10 s', '4 s', NULL, NULL, 2),
             ('late', 'succeeded', 3, '50 s', '1 s', NULL, NULL, 1),
             ('late', 'succeeded', 3, '10 s', '1 s', NULL, NULL, 2),
             ('late', 'skipped', 3, NULL, NULL, NULL, 4, 3),
             ('bad', 'dead', 4, '0 s', '9 s', E'OSError: no route\\nmore', NULL, 1),
             ('bad', 'missed', 4, NULL, NULL, NULL, 3, 2), ('good', 'succeeded', 3, '2 m', '60 s', NULL, NULL, 900)
     ) v(job, state, phase, late, took, error, covers, minutes)
JOIN pgsched.jobs j ON j.name = v.job CROSS JOIN LATERAL (
    SELECT clock_timestamp() - v.minutes * interval '1 minute' - interval '1 minute' AS at, v.state, v.phase::smallint,
        coalesce(v.late, '0')::interval AS late, coalesce(v.took, '0')::interval AS took, v.error, v.covers::int) h
"""


@pytest.fixture
def night(db: psycopg.Connection[Any]) -> None:
    """Make a history of three jobs, and of a task without a job."""
    db.execute("SET session_replication_role = replica")
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, decided_until, anchor_at, max_lateness)"
        " SELECT n, 't', '@daily', now(), now(), CASE n WHEN 'late' THEN interval '30 s' END"
        " FROM unnest('{good,late,bad}'::text[]) n"
    )
    db.execute(HISTORY)
    db.execute(
        "INSERT INTO pgsched.runs (task, state, phase, attempt, started_at, finished_at)"
        " VALUES ('app.one', 'succeeded', 3, 1, now() - interval '2 m', now() - interval '1 m')"
    )
    db.execute("SET session_replication_role = origin")


@pytest.mark.usefixtures("night")
def test_the_worst_jobs_come_first(pgsched: Program) -> None:
    said = pgsched("report", "--since", "1h")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].endswith(": 6 runs, 1 dead, 3 missed, 4 skipped, 1 late")
    assert [line.split() for line in lines[2:7]] == [
        ["JOB", "OK", "DEAD", "MISSED", "SKIPPED", "LATE", "P50", "MAX"],
        ["bad", "0", "1", "3", "0", "0", "9s", "9s"],
        ["late", "2", "0", "0", "4", "1", "1s", "1s"],
        ["(task)", "app.one", "1", "0", "0", "0", "0", "1m", "1m"],
        ["good", "2", "0", "0", "0", "0", "3s", "4s"],
    ]
    assert lines[-1].split(maxsplit=1) == ["bad", "OSError: no route"]


@pytest.mark.usefixtures("night")
def test_the_time_has_two_ends(pgsched: Program) -> None:
    said = pgsched("report", "--since", "20h", "--until", "10h", "--json")
    assert said.err == ""
    found = said.json
    assert (found["exact"], found["totals"]["ok"], found["totals"]["late"]) == (True, 1, 1)
    assert [one["job"] for one in found["jobs"]] == ["good"]
    assert pgsched("report", "--since", "2h", "--until", "3h").err.startswith("error: since: is not before")
    quiet = pgsched("report", "--since", "20h", "--until", "19h")
    assert quiet.out.endswith("0 runs; nothing failed\n")


@pytest.mark.usefixtures("night")
def test_a_deleted_job_is_named_by_its_id(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    db.execute("SET session_replication_role = replica")
    db.execute("DELETE FROM pgsched.jobs WHERE name = 'bad'")
    said = pgsched("report")
    assert " (deleted)" in said.out.splitlines()[3], said.err


@pytest.mark.usefixtures("night")
def test_counted_hours_serve_where_runs_are_pruned_or_too_many(db: psycopg.Connection[Any]) -> None:
    """Bin 12 holds 1 to 2 s, bins 17 and 18 hold 33 s and more."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    db.execute(
        "INSERT INTO pgsched.rollups SELECT w, %s, CASE w WHEN 'hour' THEN j.id ELSE 0 END, '', '', s, 5, 5, 0, 1, 1,"
        " 0, 5, 70, b, b, l, %s FROM pgsched.jobs j, unnest('{hour,hour of all}'::text[]) w,"
        " unnest('{succeeded,dead}'::text[]) s, LATERAL (SELECT"
        "   array_agg(CASE n WHEN 12 THEN 5 ELSE 0 END ORDER BY n) AS b,"
        "   array_agg(CASE n WHEN 17 THEN 2 WHEN 18 THEN 3 ELSE 0 END ORDER BY n) AS l"
        "   FROM generate_series(1, 26) n) bins WHERE j.name = 'late'",
        [hour, hour],
    )
    pruned = read_report(db, timedelta(hours=5))
    assert not pruned.exact and pruned.since.minute == 0
    (late,) = pruned.jobs
    assert (late.job, late.ok, late.dead, late.late) == ("late", 5, 5, 10)  # 32 s and more: above 30 s
    assert late.took_50_s is not None and 1.024 <= late.took_50_s <= 2.048 == late.took_max_s
    assert read_report(db, timedelta(hours=1)).exact
    assert not read_report(db, timedelta(hours=1), most=3).exact


def test_values_in_bins_above_a_bound_are_counted() -> None:
    bins = [1] * 26
    assert [count_above(bins, seconds) for seconds in (0.001, 0.002, 60, 1e9)] == [25, 24, 9, 0]
