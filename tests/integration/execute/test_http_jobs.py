"""HTTP jobs: the database refuses invalid ones at INSERT, and real workers run valid ones to every outcome."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.apps import ledger
from tests.support.db.setting import row_of
from tests.support.fleet import Fleet, fleet_on, one, state
from tests.support.http.answering import Server, answer, never, serving
from tests.support.http.http_wrong import RIGHT, WRONG_ARGS, WRONG_URLS
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.packages

JOB = "INSERT INTO pgsched.jobs (name, kind, task, args) VALUES ('j', 'http', %s, %s)"
NAME = "SELECT pgsched.outside_name(id, created_at) FROM pgsched.runs WHERE id = %s"
RUN = "INSERT INTO pgsched.runs (kind, task, args) VALUES ('http', %s, %s)"


@pytest.mark.few(30)
@pytest.mark.parametrize("statement", [JOB, RUN], ids=["job", "run"])
@pytest.mark.parametrize(("url", "args", "error"), [
    *((url, {}, error) for url, error in WRONG_URLS), *(("http://a.org/", args, error) for args, error in WRONG_ARGS),
])  # fmt: skip
def test_an_invalid_http_job_is_refused_at_the_insert(
    db: psycopg.Connection, statement: str, url: str, args: Any, error: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        db.execute(statement.encode(), [url, json.dumps(args)])
    assert refused.value.diag.message_primary == error
    assert refused.value.diag.column_name == error.partition(":")[0]


@pytest.mark.parametrize(("url", "args"), RIGHT)
def test_a_valid_http_job_is_accepted(db: psycopg.Connection, url: str, args: Any) -> None:
    db.execute(JOB.encode(), [url, json.dumps(args)])
    db.execute(RUN.encode(), [url, json.dumps(args)])


def test_an_update_that_makes_an_http_job_invalid_is_refused(db: psycopg.Connection) -> None:
    db.execute(JOB.encode(), ["http://a.org/", "{}"])
    db.execute(RUN.encode(), ["http://a.org/", "{}"])
    for table in ("jobs", "runs"):
        with pytest.raises(psycopg.errors.CheckViolation, match=r"args\.method: expected"):
            db.execute(f"UPDATE pgsched.{table} SET args = '{{\"method\": 1}}'".encode())
        with pytest.raises(psycopg.errors.CheckViolation, match="task: a URL must begin"):
            db.execute(f"UPDATE pgsched.{table} SET task = 'x'".encode())


# ---- real workers


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture
def fleet(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    ledger.install(dsn)
    with fleet_on(dsn, tmp_path) as started:
        yield started


def start(fleet: Fleet, *options: str) -> None:
    fleet.start(1, "--allow", "task,http", "--http-allow", "127.0.0.1", "--lease", "2", "--reap-every", "0.2", *options)


def add(db: psycopg.Connection, url: str, **columns: Any) -> int:
    given = {"kind": "http", "task": url, "backoff_base": "0"} | columns
    names, values = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    row = db.execute(f"INSERT INTO pgsched.runs ({names}) VALUES ({values}) RETURNING id".encode(), given).fetchone()
    assert row is not None
    return int(row[0])


def test_a_worker_sends_the_request_of_a_run_and_keeps_the_answer(
    fleet: Fleet, db: psycopg.Connection, server: Server
) -> None:
    server.answers |= {"/ok": answer(body='{"n": 1}', content_type="application/json"), "/no": answer("404 x", "gone")}
    start(fleet)
    good, bad = add(db, server.url("/ok")), add(db, server.url("/no"))
    other = add(db, server.url("/ok", host="127.0.0.2"))
    for run_id, end in ((good, "succeeded"), (bad, "dead"), (other, "dead")):
        wait_until(lambda r=run_id, e=end: state(db, r) == e, what=f"run {run_id} to be {end}")  # type: ignore[misc]
    assert row_of(db, good)["result"]["body"] == {"n": 1}
    assert (row_of(db, bad)["attempt"], row_of(db, bad)["error"]) == (1, "HTTP 404 Not Found: gone")
    assert "127.0.0.2 is not a public address" in row_of(db, other)["error"]
    assert [seen.path for seen in server.seen if seen.path == "/no"] == ["/no"]


@pytest.mark.long
def test_a_job_made_by_a_plain_insert_sends_its_slot(fleet: Fleet, db: psycopg.Connection, server: Server) -> None:
    server.answers["/"] = answer()
    start(fleet)
    db.execute("INSERT INTO pgsched.jobs (name, kind, task, args) VALUES ('j', 'http', %s, %s)",
               [server.url(), '{"method": "GET"}'])  # fmt: skip
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"), what="its run")
    (seen,) = server.seen
    slot = one(db, "SELECT scheduled_at FROM pgsched.runs")
    assert (seen.method, seen.headers["x-pgsched-scheduled-at"]) == ("GET", slot.isoformat())


@pytest.mark.long
def test_retry_after_of_the_server_sets_the_time_of_the_next_attempt(
    fleet: Fleet, db: psycopg.Connection, server: Server
) -> None:
    server.answers["/"] = answer("503 x", retry_after="3600")
    start(fleet)
    run = add(db, server.url())
    wait_until(lambda: state(db, run) == "scheduled", what="the end of the first attempt")
    waits = "SELECT extract(epoch FROM available_at - clock_timestamp()) FROM pgsched.runs"
    assert 3500 < one(db, waits) <= 3600


@pytest.mark.long
def test_attempts_after_a_time_out_carry_the_same_key(fleet: Fleet, db: psycopg.Connection, server: Server) -> None:
    server.answers["/"] = never
    start(fleet)
    run = add(db, server.url(), timeout="0.3 s", max_attempts=2)
    wait_until(lambda: state(db, run) == "dead", what="the last attempt")
    keys = [(seen.headers["idempotency-key"], seen.headers["x-pgsched-attempt"]) for seen in server.seen]
    name = one(db, NAME, run)
    assert keys == [(name, "1"), (name, "2")]
    assert row_of(db, run)["error"] == "timed out after 0.3 s"
    wait_until(lambda: server.left == 2, what="both connections to be closed")


@pytest.mark.long
def test_a_cancelled_run_aborts_its_request(fleet: Fleet, db: psycopg.Connection, server: Server) -> None:
    server.answers["/"] = never
    start(fleet)
    run = add(db, server.url())
    wait_until(lambda: server.seen, what="the request")
    db.execute("SELECT pgsched.cancel(%s)", [run])
    wait_until(lambda: state(db, run) == "cancelled", what="the cancellation")
    wait_until(lambda: server.left, what="the connection to be closed")


@pytest.mark.long
def test_the_run_of_a_killed_worker_is_sent_again_with_the_same_key(
    fleet: Fleet, db: psycopg.Connection, server: Server
) -> None:
    server.answers["/"] = never
    start(fleet)
    run = add(db, server.url())
    wait_until(lambda: server.seen, what="the request")
    os.kill(fleet.members[0].pid, signal.SIGKILL)
    server.answers["/"] = answer()
    start(fleet)
    wait_until(lambda: state(db, run) == "succeeded", timeout=30, what="the second attempt")
    assert [seen.headers["idempotency-key"] for seen in server.seen] == [one(db, NAME, run)] * 2


@pytest.mark.long
def test_a_stopped_worker_aborts_its_request_and_hands_the_run_back(
    fleet: Fleet, db: psycopg.Connection, server: Server
) -> None:
    server.answers["/"] = never
    start(fleet, "--grace", "0.2")
    run = add(db, server.url())
    wait_until(lambda: server.seen, what="the request")
    fleet.members[0].signal(signal.SIGTERM)
    assert fleet.members[0].ended() == 0
    assert (state(db, run), server.left) == ("queued", 1)


@pytest.mark.long
def test_http_allow_without_the_kind_http_ends_the_worker_with_an_error(dsn: str) -> None:
    command = [sys.executable, "-m", "pgsched", "worker", "--dsn", dsn, "--no-pings", "--http-allow", "10.0.0.1"]
    for more in ([], ["--allow", "sql,shell"], ["--processes", "2"]):
        done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=60)
        said = (
            "error: http-allow: this worker runs no http jobs and sends no pings: start it with --allow http, or"
            " without --no-pings"
        )
        assert (done.returncode, done.stderr.splitlines()[-1]) == (2, said)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http-allow", "10.0.0.1/8"], "http-allow: '10.0.0.1/8' is not a host, host:port, address or CIDR network"),
        (["--allow", "https"], "allow: https is not one of task, command, shell, sql, http; did you mean http?"),
        ([], "allow: http needs the package httpx: pip install 'pgsched[http]', or leave http out"),
    ],
)
def test_a_worker_that_cannot_send_requests_ends_with_an_error(dsn: str, options: list[str], said: str) -> None:
    missing = "" if options else "sys.modules['httpx'] = None;"
    code = f"import sys; {missing} from pgsched.cli import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "worker", "--dsn", dsn, "--allow", "http", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: {said}"
