"""Real workers tell a job's ping_url of its runs, and Sentry of its errors and check-ins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgsched import App, Run
from pgsched.db.queries.leader import ticks
from tests.support.db.backfilling import work as work_backfills
from tests.support.db.overlapping import ticked
from tests.support.db.setting import add_jobs
from tests.support.http.answering import Server, answer, serving
from tests.support.working import ENDED, work

pytestmark = pytest.mark.packages


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


def paths(server: Server) -> list[str]:
    return [seen.path.partition("?")[0] for seen in server.seen]


def add_job(db: psycopg.Connection, server: Server, task: str, **columns: Any) -> None:
    for path in ("/x", "/x/start", "/x/fail"):
        server.answers[path] = answer()
    given = {"name": "j", "task": task, "ping_url": server.url("/x"), "max_attempts": 2, "backoff_base": "0"} | columns
    names, marks = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    db.execute(f"INSERT INTO pgsched.jobs (schedule, {names}) VALUES ('0 0 1 1 *', {marks})".encode(), given)
    db.execute("SELECT pgsched.trigger('j')")


def run(db: psycopg.Connection, dsn: str, app: App | None, server: Server, expected: list[str], **more: Any) -> None:
    def done() -> Any:
        with db.transaction():
            ticks.admit(db, 10)  # as a leader does, where an attempt has failed
        return len(server.seen) >= len(expected) and db.execute(ENDED).fetchone() == (True,)

    work(dsn, app, done, http_allow=("127.0.0.1",), **more)
    assert paths(server) == expected


@pytest.mark.parametrize("kind", ["inline", "waiting", "plain"])
def test_a_task_tells_its_start_and_its_end(
    db: psycopg.Connection, dsn: str, app: App, server: Server, kind: str
) -> None:
    async def inline(run: Run) -> None:
        run.log("loaded 3 rows")

    async def waiting(run: Run) -> None:
        await asyncio.sleep(0.01)
        run.log("loaded 3 rows")

    def plain(run: Run) -> None:
        run.log("loaded 3 rows")

    app.task(name="t")({"inline": inline, "waiting": waiting, "plain": plain}[kind])
    for _ in range(3):
        db.execute("SELECT pgsched.enqueue('t')")  # none of a job: neither told nor slowed down
    add_job(db, server, "t")
    run(db, dsn, app, server, ["/x/start", "/x"])
    assert server.seen[1].body.decode().endswith("loaded 3 rows\n")


def test_a_task_that_fails_for_good_tells_it_once(db: psycopg.Connection, dsn: str, app: App, server: Server) -> None:
    @app.task(name="t")
    async def broken() -> None:
        raise ValueError("no disk")

    add_job(db, server, "t")
    run(db, dsn, app, server, ["/x/start", "/x/start", "/x/fail"])
    assert "ValueError: no disk" in server.seen[2].body.decode()
    assert len({seen.path.partition("?")[2] for seen in server.seen}) == 1, "one run"


def test_a_program_tells_its_output(db: psycopg.Connection, dsn: str, server: Server) -> None:
    add_job(db, server, "echo hello; exit 3", kind="shell", max_attempts=1)
    run(db, dsn, None, server, ["/x/start", "/x/fail"])
    assert server.seen[1].body.decode().splitlines()[1:] == ["exit code 3: hello", "hello"]


def test_every_run_of_a_job_carries_the_url_whoever_makes_it(db: psycopg.Connection) -> None:
    add_jobs(db, 2, 0, catch_up="all")
    db.execute("UPDATE pgsched.jobs SET ping_url = 'http://a.org' WHERE name = 'j1'")
    ticked(db, 2)
    plain = db.execute("SELECT bool_and(checked) FROM pgsched.runs").fetchone()
    assert plain == (True,), "such a slot costs no trigger more than another one"
    db.execute("SELECT pgsched.trigger('j1')")
    db.execute("DELETE FROM pgsched.runs WHERE scheduled_at = (SELECT min(scheduled_at) FROM pgsched.runs)")
    db.execute("SELECT pgsched.backfill(name, now() - interval '1 minute', now(), max_active => 100) FROM pgsched.jobs")
    while work_backfills(db):
        pass
    rows = db.execute("SELECT DISTINCT j.name, r.origin, r.options FROM pgsched.runs r JOIN pgsched.jobs j"
                      " ON j.id = r.job_id ORDER BY 1, 2").fetchall()  # fmt: skip
    carried = {"ping_url": "http://a.org"}
    assert rows == [("j1", origin, carried) for origin in ("backfill", "manual", "schedule")] + [
        ("j2", origin, None) for origin in ("backfill", "schedule")
    ]


def test_a_worker_without_pings_sends_none(db: psycopg.Connection, dsn: str, app: App, server: Server) -> None:
    @app.task(name="t")
    async def fine() -> None: ...

    add_job(db, server, "t")
    work(dsn, app, lambda: db.execute(ENDED).fetchone() == (True,), pings=False)
    assert server.connections == 0


@pytest.mark.parametrize("wrong", ["ftp://a.org", "http://u:p@a.org", "a.org", ""])
def test_a_wrong_url_is_refused(db: psycopg.Connection, wrong: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="ping_url: "):
        db.execute("INSERT INTO pgsched.jobs (name, task, ping_url) VALUES ('j', 't', %s)", [wrong])


# ---- Sentry


@pytest.fixture
def events() -> Iterator[list[dict[str, Any]]]:
    """Return the events and check-ins that reach Sentry's transport, which sends nothing."""
    sentry_sdk = pytest.importorskip("sentry_sdk")
    from sentry_sdk.transport import Transport

    found: list[dict[str, Any]] = []

    class Kept(Transport):
        """A transport that keeps what it is given."""

        def capture_envelope(self, envelope: Any) -> None:
            found.extend(item.payload.json for item in envelope.items if item.payload.json is not None)

    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=Kept, default_integrations=False)
    yield found
    sentry_sdk.init()


def check_ins(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["monitor_slug"], one["status"]) for one in events if one.get("type") == "check_in"]


def sentry_job(db: psycopg.Connection, **columns: Any) -> None:
    given = {"name": "nightly", "task": "t", "schedule": "0 2 * * *", "timezone": "Europe/Berlin", "max_attempts": 1,
             "max_lateness": "90 seconds", "max_duration": "2 hours", "alert_after_failures": 3} | columns  # fmt: skip
    names, marks = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    db.execute(f"INSERT INTO pgsched.jobs ({names}) VALUES ({marks})".encode(), given)
    db.execute("SELECT pgsched.trigger(%s)", [given["name"]])


def test_a_job_checks_in_with_sentry_and_its_error_is_an_event(
    db: psycopg.Connection, dsn: str, app: App, events: list[dict[str, Any]]
) -> None:
    from pgsched.contrib import sentry

    @app.task(name="t")
    async def broken() -> None:
        raise ValueError("no disk")

    sentry.install(app)
    sentry_job(db)
    work(dsn, app, lambda: len(check_ins(events)) == 2)
    assert check_ins(events) == [("nightly", "in_progress"), ("nightly", "error")]
    first, second = (one for one in events if one.get("type") == "check_in")
    assert first["check_in_id"] == second["check_in_id"]
    assert first["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 2 * * *"}, "timezone": "Europe/Berlin", "checkin_margin": 2,
        "max_runtime": 120, "failure_issue_threshold": 3, "recovery_threshold": 1,
    }  # fmt: skip
    (error,) = (one for one in events if "exception" in one)
    assert error["exception"]["values"][-1]["value"] == "no disk"
    assert error["tags"]["pgsched.task"] == "t"


def test_a_job_that_succeeds_checks_in_twice(
    db: psycopg.Connection, dsn: str, app: App, events: list[dict[str, Any]]
) -> None:
    from pgsched.contrib import sentry

    @app.task(name="t")
    async def fine() -> None: ...

    sentry.install(app)
    sentry_job(db)
    work(dsn, app, lambda: len(check_ins(events)) == 2)
    assert check_ins(events) == [("nightly", "in_progress"), ("nightly", "ok")]


@pytest.mark.parametrize("broken", ["capture_checkin", "new_scope"])
def test_no_error_of_sentry_reaches_a_run(
    db: psycopg.Connection,
    dsn: str,
    app: App,
    events: list[dict[str, Any]],
    broken: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pgsched.contrib import sentry

    calls: list[str] = []

    def fail(*_: Any, **__: Any) -> None:
        calls.append(broken)
        raise RuntimeError("a bug of sentry")

    place: Any = sentry if broken == "capture_checkin" else sentry.sentry_sdk
    monkeypatch.setattr(place, broken, fail)

    @app.task(name="t")
    async def wrong() -> None:
        raise ValueError("no disk")

    @app.task(name="fine")
    async def fine() -> None: ...

    sentry.install(app)
    sentry_job(db)
    sentry_job(db, name="another", task="fine")
    work(dsn, app, lambda: calls and db.execute(ENDED).fetchone() == (True,))
    assert db.execute("SELECT state, error FROM pgsched.runs ORDER BY task DESC").fetchall() == [
        ("dead", "ValueError: no disk"), ("succeeded", None),
    ]  # fmt: skip
