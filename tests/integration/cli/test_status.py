"""`pgsched status`: every figure is right, and the exit code says whether an operator must act."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from pgsched.services import charts
from pgsched.services import status as observe
from pgsched.telemetry import database_metrics
from tests.support.db.setting import take

pytestmark = pytest.mark.packages

Pgsched = Callable[..., Any]


def a_leader(db: psycopg.Connection, term: int = 1, seen: str = "0s", resigned: bool = False) -> None:
    db.execute(
        "INSERT INTO pgsched.leader (term, holder, hostname, pid, seen_at, resigned_at) "
        "VALUES (%s, 'host:1', 'host', 1, clock_timestamp() - %s::interval, CASE WHEN %s THEN now() END)",
        [term, seen, resigned],
    )


def a_worker(db: psycopg.Connection, seen: str = "0s", **more: Any) -> None:
    values: dict[str, Any] = {"kinds": ["task"], "tasks": ["known"], "queues": None, "abandoned": 0, "running": 1}
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, queues, lease, seen_at,"
        " running, abandoned) VALUES ('host:1', 'host', 1, '1', 8, %(kinds)s, %(tasks)s, %(queues)s, '30s',"
        " clock_timestamp() - %(seen)s::interval, %(running)s, %(abandoned)s)",
        values | more | {"seen": seen},
    )


def a_job(db: psycopg.Connection, name: str = "a", schedule: str | None = "@daily") -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES (%s, 'known', %s)", [name, schedule])


def queued(db: psycopg.Connection, task: str = "known", ago: str = "0s", n: int = 1, **more: Any) -> None:
    db.execute(
        "INSERT INTO pgsched.runs (task, available_at, queue, kind) SELECT %(task)s, "
        "clock_timestamp() - %(ago)s::interval, %(queue)s, %(kind)s FROM generate_series(1, %(n)s)",
        {"queue": "default", "kind": "task"} | more | {"task": task, "ago": ago, "n": n},
    )


def problems(db: psycopg.Connection) -> str:
    found = observe.read_status(db)
    assert found.healthy == (not found.problems)
    return "\n".join(found.problems)


def test_a_new_database_is_healthy(pgsched: Pgsched) -> None:
    said = pgsched("status")
    assert said.code == 0
    assert said.out.startswith("healthy\n")


def test_a_working_system_is_healthy(db: psycopg.Connection, pgsched: Pgsched) -> None:
    a_leader(db)
    a_worker(db)
    a_job(db)
    queued(db, ago="10s", n=3)
    assert problems(db) == ""
    found = pgsched("status", "--json")
    assert found.code == 0
    assert found.json["leader"]["alive"]
    assert found.json["workers"][0]["concurrency"] == 8
    (queue,) = found.json["queues"]
    assert (queue["name"], queue["queued"], queue["running"]) == ("default", 3, 0)
    assert 10 <= queue["oldest_queued_s"] < 60
    assert [fire["name"] for fire in found.json["next_fires"]] == ["a"]
    text = pgsched("status").out
    assert "host:1, term 1, seen " in text
    assert "1 alive, 1 of 8 busy" in text


@pytest.mark.parametrize(
    ("leader", "why"),
    [
        (None, "no process has ever led"),
        ({"seen": "6s"}, "host:1 was last seen 6 s ago"),
        ({"resigned": True}, "host:1 resigned"),
    ],
)
def test_jobs_without_a_live_leader_are_unhealthy(
    db: psycopg.Connection, pgsched: Pgsched, leader: dict[str, Any] | None, why: str
) -> None:
    if leader is not None:
        a_leader(db, **leader)
    assert problems(db) == "", "without jobs nobody misses a leader"
    a_job(db)
    assert f"no live leader: {why}" in problems(db)
    said = pgsched("status")
    assert said.code == 1
    assert said.out.startswith("UNHEALTHY\n")


def test_the_newest_term_counts(db: psycopg.Connection) -> None:
    a_leader(db, term=1)
    a_leader(db, term=2, seen="1 hour")
    a_job(db)
    assert "no live leader" in problems(db)
    a_leader(db, term=3)
    assert problems(db) == ""


def test_a_leader_that_does_not_decide_is_a_problem(db: psycopg.Connection) -> None:
    a_leader(db)
    a_job(db)
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")  # otherwise a trigger sets the past slot to now
        db.execute("UPDATE pgsched.jobs SET next_run_at = clock_timestamp() - interval '1 minute'")
    assert "behind with due slots" in problems(db)


@pytest.mark.parametrize("gone", ["none", "silent", "stopped", "stopping"])
def test_queued_runs_without_a_live_worker_are_unhealthy(db: psycopg.Connection, gone: str) -> None:
    if gone != "none":
        a_worker(db, seen="31s" if gone == "silent" else "0s")
    if gone.startswith("stop"):
        db.execute(f"UPDATE pgsched.workers SET {gone}_at = now()")
    assert problems(db) == ""
    queued(db, n=2)
    assert "no live worker, and 2 runs are queued" in problems(db)


def test_runs_that_no_worker_offers_to_run_are_unroutable(db: psycopg.Connection, pgsched: Pgsched) -> None:
    a_worker(db, queues=["default", "mail"], kinds=["task", "shell"])
    queued(db, "unheard.of", n=4)
    queued(db, "echo 1", kind="shell")
    queued(db, "SELECT 1", kind="sql")
    queued(db, "known", queue="elsewhere")
    queued(db, "known", queue="mail")
    found = pgsched("status", "--json")
    assert found.code == 1
    lost = {(u["queue"], u["kind"], u["task"], u["count"]) for u in found.json["unroutable"]}
    assert lost == {
        ("default", "task", "unheard.of", 4), ("default", "sql", None, 1), ("elsewhere", "task", "known", 1),
    }  # fmt: skip
    assert "no live worker offers task unheard.of on queue default (4 queued)" in "\n".join(found.json["problems"])
    assert "unheard.of" in pgsched("status").out
    a_worker(db, kinds=["task", "sql"], tasks=["known", "unheard.of"])
    assert problems(db) == ""


def test_a_run_that_has_waited_long_is_a_problem(db: psycopg.Connection) -> None:
    a_worker(db)
    queued(db, ago="6 minutes")
    assert "queue default: 1 run waits, the oldest for 6 minutes" in problems(db)
    assert "1 of 8 places are busy" in problems(db)


def test_jobs_in_error_are_shown_with_their_text(db: psycopg.Connection, pgsched: Pgsched) -> None:
    a_leader(db)
    a_job(db)
    db.execute("UPDATE pgsched.jobs SET error = 'schedule: never fires', error_at = now(), next_run_at = NULL")
    assert problems(db) == "job a is in error: schedule: never fires"
    assert "schedule: never fires" in pgsched("status").out


def test_each_job_is_counted_once_as_the_list_of_jobs_names_it(db: psycopg.Connection, pgsched: Pgsched) -> None:
    a_leader(db)
    for name in ("planned", "in error", "paused", "paused in error"):
        a_job(db, name)
    db.execute("UPDATE pgsched.jobs SET error = 'x', error_at = now(), next_run_at = NULL WHERE name LIKE '%in error'")
    db.execute("UPDATE pgsched.jobs SET paused = true WHERE name LIKE 'paused%'")
    counted = {sample[1][0]: sample[2] for sample in database_metrics.job_samples(db) if sample[1]}
    assert counted == {"planned": 1, "paused": 2, "error": 1}
    assert "4, 2 paused, 1 in error" in pgsched("status").out
    assert problems(db) == "job in error is in error: x", "the other one is not wanted now"
    for state, name in (("paused", "paused"), ("error", "error"), ("active", "planned")):
        assert len(json.loads(pgsched("job", "list", "--state", state, "--json").out)) == counted[name]


def test_abandoned_handlers_are_a_problem(db: psycopg.Connection) -> None:
    a_worker(db, abandoned=2)
    assert "2 abandoned handlers" in problems(db)


def test_finished_runs_are_counted(db: psycopg.Connection) -> None:
    a_job(db)
    ended = (
        "INSERT INTO pgsched.runs (task, state, attempt, job_id, scheduled_at, origin, started_at, finished_at,"
        " covers_count) SELECT 'known', %s, %s, id, now() - %s::interval, 'schedule', {},"
        " clock_timestamp() - %s::interval, %s FROM pgsched.jobs"
    )
    done = ended.format("clock_timestamp() - interval '1 second' * %s")
    for state, attempt, slot, started_s, finished in [
        ("succeeded", 1, "10s", 9, "8s"),
        ("succeeded", 1, "200s", 30, "10s"),  # started late
        ("succeeded", 2, "300s", 29, "11s"),  # a retry, not late
        ("succeeded", 1, "250s", 249, "2 minutes"),
        ("dead", 3, "890s", 885, "10 minutes"),
        ("dead", 3, "2 days", 172_000, "25 hours"),
    ]:
        db.execute(done, [state, attempt, slot, started_s, finished, None])
    db.execute(ended.format("NULL"), ["missed", 0, "5 hours", "5 hours", 7])
    found = observe.read_status(db)
    assert (found.finished.done_1, found.finished.done_5, found.finished.done_15) == (3, 4, 5)
    assert found.finished.late == 1
    assert found.finished.sampled_s is None
    assert found.finished.per_s(1) == pytest.approx(3 / 60)
    attention = found.attention
    assert (attention.dead, attention.dead_day, attention.missed_day, attention.missed_slots_day) == (2, 1, 1, 7)


def test_paused_jobs_are_counted_and_do_not_fire(db: psycopg.Connection) -> None:
    a_leader(db)
    for name in ("a", "b"):
        a_job(db, name)
    db.execute("UPDATE pgsched.jobs SET paused = true WHERE name = 'a'")
    found = observe.read_status(db)
    assert (found.jobs.total, found.jobs.paused) == (2, 1)
    assert [fire.name for fire in found.next_fires] == ["b"]


def test_a_busy_system_is_sampled(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "SAMPLE", 100)
    db.execute(
        "INSERT INTO pgsched.runs (task, state, started_at, finished_at) SELECT 't', 'succeeded', now(),"
        " clock_timestamp() - n * interval '100 milliseconds' FROM generate_series(1, 500) n"
    )
    found = observe.read_status(db).finished
    assert found.sampled_s is not None
    assert (found.done_15, found.counted_s) == (500, None), "ten times as many are counted"
    monkeypatch.setattr(observe, "COUNTED", 1)
    found = observe.read_status(db).finished
    assert found.done_15 == 100
    assert found.counted_s is not None
    assert found.per_s(15) == pytest.approx(10, rel=0.3)


def test_the_rate_of_a_burst_is_right_although_only_a_sample_is_read(db: psycopg.Connection) -> None:
    """4,000 runs end within one second and then none; only the newest 300 of them are read."""
    now = db.execute("SELECT clock_timestamp()").fetchone()
    assert now is not None
    begin = datetime.fromtimestamp(now[0].timestamp() // 15 * 15 - 30, UTC)
    db.execute(
        "INSERT INTO pgsched.runs (task, state, attempt, started_at, finished_at) SELECT 't', 'succeeded', 1, now(),"
        " %s + n * interval '250 microseconds' FROM generate_series(1, 4000) n", [begin],
    )  # fmt: skip
    recent = charts.Recent("15m")
    for _ in range(2):  # the second look uses what the first one read
        lately = recent.look(db, now[0])
        (busy,) = [one for one in lately if one.per_s]
        assert (busy.from_at, busy.sampled) == (begin, True)
        assert busy.per_s == pytest.approx(4000 / 15)
    assert charts.compute_rate(lately, 300) == pytest.approx(4000 / 300, rel=0.1)
    found = observe.read_status(db).finished
    assert found.per_s(1) == pytest.approx(4000 / 60)


def test_only_the_newest_of_many_dead_runs_are_counted(
    db: psycopg.Connection, pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute(
        "INSERT INTO pgsched.runs (task, state, started_at, finished_at, attempt) SELECT 't', 'dead', now(), now(), 1"
        " FROM generate_series(1, 30)"
    )
    assert not observe.read_status(db).attention.sampled
    assert "dead        30 kept" in pgsched("status").out
    monkeypatch.setattr(observe, "SAMPLE", 20)
    assert observe.read_status(db).attention.sampled
    assert "dead        20+ kept" in pgsched("status").out


def test_fewer_of_the_older_dead_runs_are_counted(
    db: psycopg.Connection, pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute(
        "INSERT INTO pgsched.runs (task, state, started_at, finished_at, attempt) SELECT 't', 'dead', now(),"
        " now() - days * interval '1 day', 1 FROM generate_series(1, 30), unnest(ARRAY[0, 2]) days"
    )
    found = observe.read_status(db).attention
    assert (found.dead, found.dead_day, found.sampled, found.uncounted) == (60, 30, False, False)
    monkeypatch.setattr(observe, "OLDER", 10)
    found = observe.read_status(db).attention
    assert (found.dead, found.dead_day, found.sampled, found.uncounted) == (40, 30, False, True)
    out = pgsched("status").out
    assert "30 dead" in out and "dead        40+ kept" in out


def test_a_long_queue_is_counted_up_to_a_bound(
    db: psycopg.Connection, pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_worker(db)
    queued(db, n=50)
    assert observe.read_status(db).counted_all
    monkeypatch.setattr(observe, "MOST_OPEN", 20)
    found = observe.read_status(db)
    assert (found.counted_all, found.queues[0].queued) == (False, 20)
    assert "only the first ones were counted" in pgsched("status").out


def test_the_bound_on_counted_runs_is_for_each_phase(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "MOST_OPEN", 20)
    queued(db, "t", n=15)
    later = "SELECT 't', %s, clock_timestamp() + make_interval(hours => 1) FROM generate_series(1, 15)"
    db.execute(f"INSERT INTO pgsched.runs (task, state, available_at) {later}".encode(), ["scheduled"])
    db.execute(f"INSERT INTO pgsched.runs (task, state, available_at) {later}".encode(), ["waiting"])
    assert observe.read_status(db).counted_all
    assert len(take(db, n=7)) == 7
    assert observe.read_status(db).counted_all
    queued(db, n=15)
    assert not observe.read_status(db).counted_all


def test_no_statement_of_status_scans_the_history(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.runs (task, state, started_at, finished_at) SELECT 't', 'succeeded', now(),"
        " now() - interval '2 days' FROM generate_series(1, 20000)"
    )
    from pgsched.db.statements import sql

    db.execute("SET enable_seqscan = off")
    for name in ("runs_open_by_state", "runs_finished_lately", "runs_needing_attention", "health_unpruned"):
        plan = db.execute(b"EXPLAIN " + sql(name), {"n": 100, "older": 100, "most": 100, "misfit": ""}).fetchall()
        assert "Seq Scan on runs" not in str(plan), name
