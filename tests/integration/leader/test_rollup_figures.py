"""The figures that outlive pruned runs agree with what the runs said."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.services import long_charts
from tests.support.db.pruning import count, keep, prune


def add(db: psycopg.Connection, seconds: float, **columns: object) -> None:
    """Add a run that ended just now and took this many seconds."""
    given = {"task": "t", "state": "succeeded", "attempt": 1} | columns
    names, marks = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    db.execute(
        f"INSERT INTO pgsched.runs ({names}, available_at, started_at, finished_at) SELECT {marks},"
        " t - greatest(10, %(s)s) * interval '1 s', t - %(s)s * interval '1 s', t FROM clock_timestamp() t".encode(),
        {**given, "s": seconds},
    )


def test_figures_are_kept_by_queue_task_job_and_outcome(db: psycopg.Connection) -> None:
    for _ in range(3):
        add(db, 1.0)
    add(db, 1.0, queue="loud")
    add(db, 2.0, state="dead", attempt=3)
    add(db, 1.0, kind="shell", task="echo 1")
    add(db, 1.0, kind="shell", task="echo 2")
    add(db, 1.0, job_id=7, scheduled_at="2026-01-01T00:00Z", origin="schedule")
    assert count(db) == 8
    rows = db.execute(
        "SELECT queue, task, state, runs::int, retried::int, round(duration_s::numeric, 3)::float8 FROM pgsched.rollups"
        " WHERE width = 'minute' ORDER BY 1, 2, 3"
    ).fetchall()
    assert rows == [
        ("default", "(shell)", "succeeded", 2, 0, 2.0),
        ("default", "t", "dead", 1, 1, 2.0),
        ("default", "t", "succeeded", 4, 0, 4.0),
        ("loud", "t", "succeeded", 1, 0, 1.0),
    ]
    hours = db.execute(
        "SELECT job_id::int, sum(runs)::int FROM pgsched.rollups WHERE width = 'hour' GROUP BY 1 ORDER BY 1"
    )
    assert hours.fetchall() == [(0, 7), (7, 1)]


def test_a_later_batch_adds_to_the_same_minute(db: psycopg.Connection) -> None:
    add(db, 0.003)
    count(db)
    add(db, 0.003)
    add(db, 100.0)
    count(db)
    row = db.execute("SELECT runs::int, durations, waits FROM pgsched.rollups WHERE width = 'hour'").fetchone()
    assert row is not None
    assert (row[0], sum(row[1]), sum(row[2])) == (3, 3, 3)
    assert (row[1][2], row[1][17]) == (2, 1), "two from 2 to 4 ms, one from 65 to 131 s"


def test_figures_stay_when_rows_go_and_are_read_by_stretches(db: psycopg.Connection) -> None:
    for _ in range(4):
        add(db, 1.0)
    add(db, 1.0, state="dead")
    db.execute("UPDATE pgsched.runs SET finished_at = finished_at - interval '10 minutes'")
    assert prune(db, 1.0) == 5
    found = long_charts.read_stretches_counted(db, "6h")
    executed = sum(one.per_s * (one.until_at - one.from_at).total_seconds() for one in found)
    assert (round(executed, 6), sum(one.dead for one in found), len(found)) == (5.0, 1.0, 60)
    (busy,) = [one for one in found if one.per_s]
    assert busy.wait_50 is not None and 8.192 <= busy.wait_50 <= 16.384
    assert sum(one.per_s > 0 for one in long_charts.read_stretches_counted(db, "30d")) == 1


def test_a_job_has_its_own_stretches_and_a_year_of_few_runs_is_exact(db: psycopg.Connection) -> None:
    for n in range(3):
        add(
            db,
            1.5,
            job_id=7,
            scheduled_at=f"2026-01-0{n + 1}T00:00Z",
            origin="schedule",
            state=["succeeded", "dead"][n % 2],
        )
    add(db, 1.0)
    count(db)
    for span in long_charts.OF_A_JOB:
        found = long_charts.read_job_stretches(db, 7, span)
        assert (sum(one.runs for one in found), sum(one.dead for one in found), len(found)) == (3, 1, 60), span
        assert not any(one.sampled for one in found), "it has few"
    (busy,) = [one for one in long_charts.read_job_stretches(db, 7, "7d") if one.runs]
    assert busy.took_50 is not None and 1.024 <= busy.took_50 <= 2.048
    assert not any(one.runs for one in long_charts.read_job_stretches(db, 8, "1y"))


def test_a_year_of_a_busy_job_is_estimated_from_every_eleventh_hour_and_says_so(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.rollups SELECT 'hour', date_trunc('hour', now()) - h * interval '1 h', 7, 'q', 't',"
        " 'succeeded', 2, 2, 0, 2, 0, 0, 0, NULL, b, b, b, now() FROM generate_series(1, 8000) h,"
        " (SELECT array_fill(0::bigint, ARRAY[10]) || 2::bigint || array_fill(0::bigint, ARRAY[15]) AS b) x"
    )
    found = long_charts.read_job_stretches(db, 7, "1y")
    assert sum(one.runs for one in found) == pytest.approx(16_000, abs=22) and any(one.sampled for one in found)
    assert all(one.took_50 is not None and 0.512 <= one.took_50 <= 1.024 for one in found if one.runs > 20)


def test_a_figure_found_in_a_bin_is_capped_at_the_true_maximum() -> None:
    assert long_charts.cap(7.1, 4.3) == 4.3
    assert long_charts.cap(None, 4.3) is None and long_charts.cap(7.1, None) == 7.1


def test_a_percentile_lies_within_its_bin() -> None:
    assert long_charts.percentile([0] * 26, 0.5) is None
    assert long_charts.percentile([10, 0, 0], 0.5) == 0.0005
    assert long_charts.percentile([0, 1, 0, 1], 0.95) == 0.004 + 0.004 * (1.9 - 1)


def test_minute_figures_are_deleted_after_days_and_hours_after_a_year(db: psycopg.Connection) -> None:
    add(db, 1.0)
    count(db)
    ages = ("2 days", "4 days", "399 days", "401 days")
    for age in ages:
        db.execute(
            "INSERT INTO pgsched.rollups SELECT width, from_at - %s::interval, job_id, queue, task, state, runs,"
            " started, retried, duration_s, wait_s, late_s, late, late_max_s, durations, waits, lates, last_at"
            " FROM pgsched.rollups WHERE from_at > clock_timestamp() - interval '1 day'",
            [age],
        )
    keep(db, any="1 day")
    prune(db, 86_400.0)
    left = db.execute("SELECT width, count(*)::int FROM pgsched.rollups GROUP BY 1 ORDER BY 1").fetchall()
    assert left == [("hour", 4), ("hour of all", 4), ("minute", 2), ("minute of all", 2)]


def test_a_run_whose_wait_is_no_longer_known_is_left_out_of_the_waits(db: psycopg.Connection) -> None:
    """Settling a dead run moves `available_at` to after its start. Such a run once counted as if it had not waited."""
    add(db, 5.0)
    add(db, 5.0, state="dead")
    db.execute("UPDATE pgsched.runs SET available_at = finished_at WHERE state = 'dead'")
    count(db)
    rows = db.execute(
        "SELECT state, started::int, round(wait_s::numeric, 1)::float8, (SELECT sum(w)::int FROM unnest(waits) w),"
        " (SELECT sum(d)::int FROM unnest(durations) d) FROM pgsched.rollups WHERE width = 'minute' ORDER BY 1"
    ).fetchall()
    assert rows == [("dead", 1, 0.0, 0, 1), ("succeeded", 1, 5.0, 1, 1)]
