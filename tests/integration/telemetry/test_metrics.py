"""Metrics of real workers, scraped while they work: the counts match what happened."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgsched import App
from pgsched.config import Settings
from pgsched.telemetry.catalogue import BY_NAME, METRICS, MOST, OTHER
from pgsched.telemetry.metrics import BoundedLabels, Meter
from pgsched.worker.process import make_worker
from pgsched.worker.process_endpoint import ProcessEndpoints
from tests.support.fleet import Fleet
from tests.support.paths import ROOT
from tests.support.telemetry.scraping import Scrape, answers, ask, free_port
from tests.support.waiting import wait_until
from tests.support.working import settings

pytestmark = [pytest.mark.packages, pytest.mark.scram]

pytest.importorskip("prometheus_client")


def ended(db: psycopg.Connection) -> bool:
    return db.execute("SELECT count(*) FROM pgsched.runs WHERE finished_at IS NULL").fetchone() == (0,)


def insert(db: psycopg.Connection, task: str, count: int = 1, args: str = "{}", **columns: object) -> None:
    names = "".join(f", {name}" for name in columns)
    db.execute(
        f"INSERT INTO pgsched.runs (task, args{names}) SELECT %s, %s::jsonb{', %s' * len(columns)}"
        " FROM generate_series(1, %s)".encode(),
        [task, args, *columns.values(), count],
    )


def test_counts_match_what_happened(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    fleet.start(1, "--metrics", f"127.0.0.1:{port}", "--app", "tests.support.telemetry.counted:app", "--poll", "0.2")
    insert(db, "fine", 300)
    insert(db, "fine", 7, queue="mail")
    insert(db, "fails", 2, max_attempts=2, backoff="fixed", backoff_base="10 ms", backoff_jitter=0)
    db.execute("INSERT INTO pgsched.jobs (name, task, run_at) VALUES ('soon', 'slot', now())")
    wait_until(lambda: ended(db) and Scrape(port).value("pgsched_runs_finished_total") == 310, 60, "its work")
    found = Scrape(port)
    attempts, finished = "pgsched_attempts_total", "pgsched_runs_finished_total"
    assert found.value(attempts, queue="default", task="fine", outcome="succeeded") == 300
    assert found.value(attempts, queue="mail", task="fine", outcome="succeeded") == 7
    assert found.value(attempts, task="fails", outcome="failed") == 4
    assert found.value(attempts) == 312
    assert found.value(finished, task="fails", state="dead") == 2
    assert found.value(finished, state="succeeded") == 308
    assert found.value("pgsched_lateness_seconds_count") in (0, 1)  # the run may not be in the sample that is timed
    assert 0 < found.value("pgsched_claim_batch_size_sum") <= 312
    assert found.value("pgsched_settle_batch_size_sum") == 312
    assert found.value("pgsched_worker_slots") == 8
    assert found.value("pgsched_slots_decided_total") == 1
    assert found.value("pgsched_tick_slots_count") >= 1
    assert found.value("pgsched_leader") == 1
    assert found.value("pgsched_leader_term") == 1


@pytest.mark.long
def test_outcomes_that_are_not_written_yet_are_counted(
    db: psycopg.Connection, fleet: Fleet, connect: Callable[..., psycopg.Connection], tmp_path: Path
) -> None:
    port, gate = free_port(), tmp_path / "gate"
    insert(db, "waits.for", 3, json.dumps({"path": str(gate)}))
    fleet.start(1, "--metrics", f"127.0.0.1:{port}", "--app", "tests.support.telemetry.counted:app", "--no-leader")
    wait_until(lambda: Scrape(port).value("pgsched_worker_slots_busy") == 3, 30, "their start")
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM pgsched.runs FOR UPDATE")
    gate.touch()
    wait_until(lambda: Scrape(port).value("pgsched_worker_slots_busy") == 0, 30, "their end")
    assert Scrape(port).value("pgsched_worker_unsettled") == 3
    holder.rollback()
    wait_until(lambda: ended(db) and Scrape(port).value("pgsched_worker_unsettled") == 0, 30, "their outcomes")


@pytest.mark.long
def test_times_are_weighted_for_all_attempts_and_use_the_database_clock(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    insert(db, "fine", 2000)
    fleet.start(
        1, "--metrics", f"127.0.0.1:{port}", "--app", "tests.support.telemetry.counted:app", "--concurrency", "50"
    )
    wait_until(lambda: Scrape(port).value("pgsched_runs_finished_total") == 2000, 60, "its work")
    # only a sample of a large batch is timed, weighted for all of it; times reach the histograms a little later
    wait_until(lambda: Scrape(port).value("pgsched_attempt_duration_seconds_count") == 2000, 10, "all times")
    insert(db, "fine", 1, queue="old", available_at="2020-01-01")
    wait_until(lambda: Scrape(port).value("pgsched_runs_finished_total") == 2001, 60, "the last run")
    wait_until(lambda: Scrape(port).value("pgsched_attempt_duration_seconds_count") == 2001, 10, "its time")
    found = Scrape(port)
    since = 150 * 86_400
    assert found.value("pgsched_pickup_latency_seconds_sum", queue="old") > since
    young = found.value("pgsched_pickup_latency_seconds_sum", queue="default")
    assert young / found.value("pgsched_pickup_latency_seconds_count", queue="default") < 60


@pytest.mark.long
def test_only_the_leader_exports_figures_of_the_whole_database(db: psycopg.Connection, fleet: Fleet) -> None:
    ports = [free_port(), free_port()]
    for port in ports:
        fleet.start(1, "--metrics", f"127.0.0.1:{port}", "--queue", "other")
    insert(db, "unknown", 3, queue="full", available_at="2026-01-01")

    def leaders() -> list[Scrape]:
        return [scrape for scrape in map(Scrape, ports) if scrape.value("pgsched_queue_runs", queue="full") == 3]

    (leader,) = wait_until(leaders, 60, "the figures") or []
    assert leader.value("pgsched_leader") == 1
    assert leader.value("pgsched_queue_oldest_age_seconds", queue="full", state="queued") > 3600
    assert leader.values("pgsched_table_dead_tuples", table="runs")
    (other,) = [scrape for scrape in map(Scrape, ports) if scrape.value("pgsched_leader") == 0]
    assert not other.values("pgsched_queue_runs")
    assert not other.values("pgsched_leader_term")
    assert not other.values("pgsched_jobs")


@pytest.mark.long
def test_every_worker_of_a_parent_is_served_at_one_port(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    fleet.launch("--metrics", f"127.0.0.1:{port}", "--app", "tests.support.telemetry.counted:app", "--processes", "2")
    answers(port, "/readyz", 200)
    wait_until(lambda: len(Scrape(port).values("pgsched_worker_slots")) == 2, 30, "both workers")
    insert(db, "fine", 400)
    wait_until(lambda: ended(db) and Scrape(port).value("pgsched_runs_finished_total") == 400, 60, "their work")
    found = Scrape(port)
    assert {s.labels["process"] for s in found.samples if s.name == "pgsched_worker_slots"} == {"1", "2"}
    assert found.value("pgsched_leader") == 1
    if promtool := shutil.which("promtool"):
        checked = subprocess.run([promtool, "check", "metrics"], input=found.text, text=True, capture_output=True)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.long
def test_nothing_is_exported_that_is_not_in_the_catalogue(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    fleet.start(1, "--metrics", f"127.0.0.1:{port}", "--app", "tests.support.telemetry.counted:app")
    insert(db, "fine", 5)
    db.execute("INSERT INTO pgsched.jobs (name, task, run_at) VALUES ('soon', 'fine', now())")
    wait_until(lambda: Scrape(port).value("pgsched_database_read_seconds") > 0, 60, "the figures")
    found = Scrape(port)
    ours = [family for family in found.families.values() if family.name.startswith("pgsched_")]
    assert len(ours) > 20
    for family in ours:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        metric = BY_NAME[name]
        assert (family.type, family.documentation) == (metric.kind, metric.meaning)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels), name
    if promtool := shutil.which("promtool"):
        checked = subprocess.run([promtool, "check", "metrics"], input=found.text, text=True, capture_output=True)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_names_and_units_follow_the_conventions_of_prometheus() -> None:
    for metric in METRICS:
        assert metric.name.startswith("pgsched_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert not metric.name.endswith(("_ms", "_milliseconds", "_minutes", "_count", "_sum", "_bucket"))
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert bool(metric.buckets) == (metric.kind == "histogram")


def test_labels_have_few_values() -> None:
    """However many tasks there are, there are only as many series as a hundred tasks make."""
    bounded = BoundedLabels()
    assert len({bounded(f"task {n}") for n in range(10 * MOST)}) == MOST + 1
    assert bounded("task 1") == "task 1"
    assert bounded("one more") == OTHER


def test_a_histogram_counts_each_value_in_its_bucket() -> None:
    meter = Meter()
    meter.observe("pgsched_settle_batch_size", [1, 2, 3, 6000], weight=2)
    meter.observe("pgsched_settle_batch_size", [2])
    ((_, _, (counts, total)),) = meter.snapshot()
    assert counts == [2, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert total == 2 * 6006 + 2


def test_lost_claims_are_counted(dsn: str, db: psycopg.Connection) -> None:
    app = App("losing")

    @app.task(name="long")
    async def long() -> None:
        await asyncio.sleep(60)

    insert(db, "long")

    async def main() -> Meter:
        observed = ProcessEndpoints(Settings(dsn, settings(metrics=f"127.0.0.1:{free_port()}", lease_s=1.5)))
        with observed:
            worker = make_worker(Settings(dsn, settings(lease_s=1.5)), app, observed)
            working = asyncio.create_task(worker.run())
            await asyncio.to_thread(wait_until, lambda: len(worker.runner) == 1, 20, "the attempt")
            db.execute("UPDATE pgsched.runs SET token = gen_random_uuid()")
            await asyncio.to_thread(wait_until, lambda: len(worker.runner) == 0, 20, "its end")
            worker.stop()
            await working
        assert observed.meter is not None
        return observed.meter

    found = {(name, labels): value for name, labels, value in asyncio.run(main()).snapshot()}
    assert found["pgsched_leases_lost_total", ("denied",)] == 1
    assert found["pgsched_attempts_total", ("default", "task", "long", "lost")] == 1


@pytest.mark.long
def test_a_scrape_asks_the_database_nothing(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    fleet.start(1, "--metrics", f"127.0.0.1:{port}")
    wait_until(lambda: Scrape(port).value("pgsched_database_read_seconds") > 0, 60, "the figures")
    age = Scrape(port).value("pgsched_database_read_age_seconds")
    began = time.monotonic()
    for _ in range(20):
        ask(port, "/metrics")
    later = Scrape(port).value("pgsched_database_read_age_seconds")
    assert later > age or time.monotonic() - began > 10


@pytest.mark.long
def test_a_port_in_use_gives_one_line(dsn: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        where = f"127.0.0.1:{holder.getsockname()[1]}"
        for more in ([], ["--processes", "2"]):
            said = run_worker(dsn, "--metrics", where, *more)
            assert said.returncode == 2
            assert said.stderr.splitlines()[-1] == f"error: metrics: cannot listen on {where}: address already in use"


@pytest.mark.few(1)
@pytest.mark.parametrize("wrong", ["9464", ":x", "::1:9464", ":99999", "host:", ""])
def test_a_wrong_address_gives_one_line(dsn: str, wrong: str) -> None:
    said = run_worker(dsn, "--health", wrong)
    assert said.returncode == 2
    assert said.stderr.splitlines()[-1].startswith("error: health: expected [HOST]:PORT")


def run_worker(dsn: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pgsched", "worker", "--dsn", dsn, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.long
def test_reconnects_are_counted(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    fleet.start(1, "--metrics", f"127.0.0.1:{port}", "--lease", "3", "--poll", "0.2")
    wait_until(lambda: Scrape(port).value("pgsched_database_read_seconds") > 0, 60, "the figures")
    assert Scrape(port).value("pgsched_reconnects_total") == 0
    db.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()"
               " AND pid <> pg_backend_pid()")  # fmt: skip
    for purpose in ("claim", "heartbeat", "listen", "leader"):
        wait_until(lambda p=purpose: Scrape(port).value("pgsched_reconnects_total", purpose=p) >= 1, 30, purpose)  # type: ignore[misc]
