"""status, doctor, top, the console, metrics and /readyz report the same problems of a system."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from pgsched.core import problems as rules
from pgsched.services import doctor, top
from pgsched.telemetry.liveness import Health
from pgsched.telemetry.system_health import SystemHealth
from tests.support.cli.rolled_back import take_release_back
from tests.support.db.leading import lead
from tests.support.waiting import wait_until

Db = psycopg.Connection[Any]
Pgsched = Callable[..., Any]
Open = Callable[..., Db]
SPAN = re.compile(r"\d+(\.\d+)? (day|hour|minute|second|s)s?\b( \d+ (hour|minute|second)s?)*")
WORKER = (
    "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, running, seen_at)"
    " VALUES (%s, 'h', 1, '1', 2, '{task}', '{t}', '30 s', %s, clock_timestamp() - %s::interval)"
)
RUNS = """INSERT INTO pgsched.runs (task, available_at)
    SELECT 't', clock_timestamp() - %s::interval FROM generate_series(1, %s)"""
JOB = "INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 't', '@daily')"
AHEAD = "UPDATE pgsched.jobs SET decided_until = clock_timestamp() + interval '1 year'"


class Scene:
    """A database with a live leader and a worker that waits for work."""

    def __init__(self, db: Db, connect: Open, pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch) -> None:
        self.db, self.connect, self.pgsched, self.monkeypatch = db, connect, pgsched, monkeypatch
        self.led()
        self.worker()

    def led(self, ago: str = "0 s") -> None:
        self.db.execute("INSERT INTO pgsched.leader (term, holder, hostname, pid, seen_at) SELECT"
                        " coalesce(max(term), 0) + 1, 'h:1', 'h', 1, clock_timestamp() + interval '1 minute'"
                        " - %s::interval FROM pgsched.leader", [ago])  # fmt: skip

    def worker(self, running: int = 0, seen: str = "0 s", name: str = "h:1") -> None:
        self.db.execute(WORKER, [name, running, seen])

    def queued(self, ago: str = "0 s", n: int = 3) -> None:
        self.db.execute(RUNS.encode(), [ago, n])

    def run(self, ago: str) -> None:
        """Mark the queued runs as started this long ago."""
        self.db.execute("UPDATE pgsched.runs SET state = 'running', token = gen_random_uuid(), attempt = 1,"
                        " started_at = clock_timestamp() - %s::interval, lease_until = now() + interval '1 minute'",
                        [ago])  # fmt: skip


def nobody_leads(scene: Scene) -> None:
    scene.db.execute("DELETE FROM pgsched.leader")
    scene.db.execute(JOB)


def no_worker(scene: Scene) -> None:
    scene.db.execute("DELETE FROM pgsched.workers")
    scene.queued()


def all_places_hang(scene: Scene) -> None:
    scene.queued("80 s", 2)
    scene.run("70 s")
    scene.db.execute("UPDATE pgsched.workers SET running = 2")
    scene.queued("70 s")


def a_limit_of_0(scene: Scene) -> None:
    assert scene.pgsched("queue", "set", "default", "--concurrency", "0").code == 0
    scene.queued()


def a_limit_of_a_key_of_0(scene: Scene) -> None:
    assert scene.pgsched("limit", "set", "api", "--concurrency", "0").code == 0
    scene.db.execute("INSERT INTO pgsched.runs (task, concurrency_key) VALUES ('t', 'api:1')")


def runs_that_wait_for_a_limit(scene: Scene) -> None:
    assert scene.pgsched("queue", "set", "default", "--concurrency", "1").code == 0
    scene.queued("400 s")
    scene.db.execute("UPDATE pgsched.runs SET ready_at = available_at")
    assert scene.db.execute("SELECT DISTINCT state FROM pgsched.runs").fetchall() == [("waiting",)]


def a_paused_queue(scene: Scene) -> None:
    assert scene.pgsched("pause", "--queue", "default", "--reason", "provider is down").code == 0
    scene.db.execute("UPDATE pgsched.pauses SET paused_at = paused_at - interval '400 s'")
    scene.queued("400 s")


def everything_paused(scene: Scene) -> None:
    assert scene.pgsched("pause", "--all").code == 0
    scene.db.execute("UPDATE pgsched.pauses SET paused_at = paused_at - interval '400 s'")
    scene.queued("400 s")


def a_queue_that_is_shut(scene: Scene) -> None:
    scene.monkeypatch.setattr(rules, "SHUT_S", 0.0)
    writer = scene.connect(autocommit=False)
    writer.execute("INSERT INTO pgsched.runs (task, queue) VALUES ('t', 'elsewhere')")
    assert scene.pgsched("queue", "set", "default", "--concurrency", "100").code == 0
    scene.queued()


def a_duty_that_fails(scene: Scene) -> None:
    """Add a foreign trigger that keeps the pruner from deleting."""
    scene.monkeypatch.setattr(rules, "FAILING_S", 0.0)
    db = scene.db
    db.execute('UPDATE pgsched.retention SET keep = \'{"any": "1 second"}\'')
    db.execute("INSERT INTO pgsched.runs (task, state, attempt, started_at, finished_at) SELECT 't', 'succeeded',"
               " 1, now(), now() - interval '3 hours' + n * interval '1 s' FROM generate_series(1, 30) n")  # fmt: skip
    db.execute("CREATE FUNCTION public.mine() RETURNS trigger LANGUAGE plpgsql AS"
               " $$ BEGIN RAISE EXCEPTION 'these stay'; END $$")  # fmt: skip
    db.execute("CREATE TRIGGER mine BEFORE DELETE ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION public.mine()")
    leader = lead(db, prune_every_s=0.01, count_every_s=0.01)

    def noted() -> bool:
        leader.run_once()
        return db.execute(
            "SELECT count(*) > 0 FROM pgsched.set_aside WHERE duty = 'pruning' AND row_id = ''"
        ).fetchone() == (True,)

    wait_until(noted, 30, "the failure to be noted")
    db.execute("UPDATE pgsched.leader SET seen_at = clock_timestamp() + interval '1 minute'")


def a_mark_ahead(scene: Scene) -> None:
    scene.db.execute(JOB)
    scene.db.execute(AHEAD)


def a_job_in_error(scene: Scene) -> None:
    scene.db.execute(JOB)
    scene.db.execute("UPDATE pgsched.jobs SET error = 'it never fires', error_at = now(), next_run_at = NULL")


def an_unknown_task(scene: Scene) -> None:
    scene.db.execute("INSERT INTO pgsched.runs (task) VALUES ('<nobody>')")


def a_release_that_was_taken_back(scene: Scene) -> None:
    take_release_back(scene.db)


def a_full_queue(scene: Scene) -> None:
    assert scene.pgsched("queue", "set", "default", "--max-depth", "3").code == 0
    scene.queued()


def an_open_alert(scene: Scene) -> None:
    scene.db.execute(JOB)
    scene.db.execute(
        "INSERT INTO pgsched.alerts (job_id, job, kind, details) VALUES (1, 'a', 'failures', '3 in a row')"
    )


def abandoned_handlers(scene: Scene) -> None:
    scene.db.execute("UPDATE pgsched.workers SET abandoned = 2")


def a_blocked_loop(scene: Scene) -> None:
    scene.db.execute("UPDATE pgsched.workers SET blocked_at = now() - interval '12 s', blocked_by = 't (run 1)'")


STATES: list[tuple[Callable[[Scene], None], set[str], str]] = [
    (nobody_leads, {"leader"}, "no live leader: no process has ever led"),
    (no_worker, {"worker"}, "no live worker, and 3 runs are queued"),
    (all_places_hang, {"backlog"}, "all 2 places are busy (2 x t; the longest for #, without a timeout)"),
    (a_limit_of_0, {"limit"}, "limit 0 on queue default: nothing of it starts, 3 runs wait"),
    (a_limit_of_a_key_of_0, {"limit"}, "limit 0 on key api: nothing of it starts, 1 run waits"),
    (runs_that_wait_for_a_limit, {"limit"}, "queue default: 3 runs wait, the oldest for #, for the limit of queue"),
    (a_paused_queue, {"pause"}, "the queue has been paused for # by"),
    (everything_paused, {"pause"}, "everything has been paused for # by"),
    (a_queue_that_is_shut, {"limit"}, "for its first limit: it waits for transactions of pid"),
    (
        a_duty_that_fails,
        {"duty", "pruning"},
        "pruning is stuck: run 1 ended # ago and is kept for #: it fails, `pgsched doctor` says why",
    ),
    (a_mark_ahead, {"mark"}, "job a: its slots count as decided until"),
    (a_job_in_error, {"job"}, "job a is in error: it never fires"),
    (an_unknown_task, {"unroutable"}, "no live worker offers task <nobody> on queue default (1 queued)"),
    (a_release_that_was_taken_back, {"unroutable"}, "3 runs of task t wait for its newest release, and no live"),
    (a_full_queue, {"full"}, "queue default is full: 3 runs wait, 3 may; new runs are refused"),
    (an_open_alert, {"alert"}, "job a, failures: 3 in a row"),
    (abandoned_handlers, {"worker"}, "worker h:1: 2 abandoned handlers"),
    (a_blocked_loop, {"worker"}, "its event loop has been blocked for # by t (run 1)"),
]


def timeless(text: str) -> str:
    """Replace time spans, because two readings are never made at the same moment."""
    return SPAN.sub("#", text)


def in_status(scene: Scene) -> list[str]:
    said = scene.pgsched("status", "--json")
    assert said.code == int(bool(said.json["problems"]))
    assert said.json["healthy"] == (not said.json["problems"])
    shown = scene.pgsched("status").out
    assert shown.startswith("UNHEALTHY\n" if said.json["problems"] else "healthy\n")
    for one in said.json["findings"]:
        assert f"-> {one['cure']}" in shown
    return list(said.json["problems"])


def in_doctor(scene: Scene, level: str = "fail") -> list[str]:
    with closing(scene.connect()) as conn:
        found = doctor.run_checks(conn, doctor.WORK)
        return [timeless(one.text) for one in found if one.name == "work" and one.level == level]


def in_top(scene: Scene) -> list[str]:
    with closing(scene.connect()) as conn:
        return top.TopReader().look(conn, top.Page()).status.problems


def in_metrics(scene: Scene) -> tuple[list[str], set[str]]:
    """Return the problems in /readyz, and the kinds of problems that the metrics count."""
    system = SystemHealth(lambda: True)
    with closing(scene.connect()) as conn:
        system.look(conn)
    status, text = Health([], [], system.lines()).answer("/readyz")
    assert status == 200, "no process is unfit for that"
    lines = text.decode().splitlines()
    assert lines[0] == "ok" and all(line.startswith("system: ") for line in lines[1:])
    return [line[8:] for line in lines[1:]], {labels[0] for _, labels, count in system.samples() if count}


@pytest.fixture
def scene(db: Db, connect: Open, pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(db, connect, pgsched, monkeypatch)


def test_a_system_that_does_its_work_has_no_problems(scene: Scene) -> None:
    scene.db.execute(JOB)
    scene.queued("10 s")
    assert in_status(scene) == in_doctor(scene) == in_top(scene) == []
    assert in_metrics(scene) == ([], set())


@pytest.mark.few(1)
@pytest.mark.parametrize(("state", "kinds", "text"), STATES, ids=[state.__name__ for state, _, _ in STATES])
def test_every_command_and_page_reports_the_same_problems(
    scene: Scene, dsn: str, state: Callable[[Scene], None], kinds: set[str], text: str
) -> None:
    state(scene)
    expected = [timeless(one) for one in in_status(scene)]
    assert any(text in one for one in expected), expected
    diagnosed = in_doctor(scene)
    assert len(diagnosed) == len(expected)
    assert all(said.startswith(f"{one}; ") for said, one in zip(diagnosed, expected, strict=True)), diagnosed
    assert [timeless(one) for one in in_top(scene)] == expected
    lines, counted = in_metrics(scene)
    assert ([timeless(line) for line in lines], counted) == (expected, kinds)
    shown = timeless(html.unescape(console(dsn, "/")))
    assert "Needs attention" in shown and "Healthy" not in shown
    assert [one for one in expected if kinds != {"alert"} and one not in shown] == []
    assert [one for one in expected if one not in timeless(html.unescape(console(dsn, "/doctor")))] == []


def console(dsn: str, path: str) -> str:
    pytest.importorskip("starlette", reason="the console's extra is not installed")
    from starlette.testclient import TestClient

    from pgsched.web.app import make_console
    from pgsched.web.settings import Settings

    with TestClient(make_console(Settings(dsn)), base_url="http://localhost", client=("127.0.0.1", 50_000)) as client:
        return str(client.get(path).text)


@pytest.mark.long
def test_a_lost_worker_is_noted_everywhere_and_is_no_problem(scene: Scene, dsn: str) -> None:
    scene.worker(name="gone:2", running=4, seen="90 s")
    note = "worker gone:2 was lost # ago; it held 4 runs"
    assert in_status(scene) == in_top(scene) == in_doctor(scene) == []
    assert note in timeless(scene.pgsched("status").out)
    assert [one.startswith(note) for one in in_doctor(scene, "warn")] == [True]
    assert note in timeless(console(dsn, "/"))
    scene.db.execute("UPDATE pgsched.workers SET stopped_at = seen_at WHERE name = 'gone:2'")
    assert note in timeless(scene.pgsched("status").out), "the leader's note that it is gone is no sign-off"
    scene.db.execute("UPDATE pgsched.workers SET stopped_at = seen_at + interval '1 second' WHERE name = 'gone:2'")
    assert "was lost" not in scene.pgsched("status").out


def test_status_names_the_runs_of_a_lost_worker_once_they_are_reaped(scene: Scene) -> None:
    scene.db.execute("DELETE FROM pgsched.leader")
    scene.worker(name="gone:2", running=4, seen="90 s")
    scene.queued(n=4)
    scene.run("100 s")
    scene.db.execute("UPDATE pgsched.runs SET lease_until = now() - interval '60 s', task = CASE id WHEN 1 THEN 'u'"
                     " ELSE 't' END, worker_id = (SELECT id FROM pgsched.workers WHERE name = 'gone:2')")  # fmt: skip
    leader = lead(scene.db)

    def reaped() -> bool:
        leader.run_once()
        return scene.db.execute("SELECT count(*) FROM pgsched.runs WHERE state = 'running'").fetchone() == (0,)

    wait_until(reaped, 30, "the claims to be taken back")
    assert "it held 3 x t, 1 x u" in scene.pgsched("status").out


@pytest.mark.long
def test_a_duty_that_succeeds_again_is_no_longer_a_problem(scene: Scene) -> None:
    a_duty_that_fails(scene)
    assert in_status(scene) != []
    scene.db.execute("DROP TRIGGER mine ON pgsched.runs")
    scene.db.execute("UPDATE pgsched.set_aside SET next_at = clock_timestamp()")
    leader = lead(scene.db, prune_every_s=0.01, count_every_s=0.01)
    leader.term.set_aside.load(scene.db)

    def over() -> bool:
        leader.run_once()
        return in_status(scene) == []

    wait_until(over, 30, "the next prune")


def test_the_allowed_wait_of_queued_runs_can_be_set(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.queued("100 s")
    assert in_status(scene) == []
    monkeypatch.setenv("PGSCHED_BACKLOG_S", "300,default=90")
    (problem,) = in_status(scene)
    assert problem.startswith("queue default: 3 runs wait, the oldest for 1 minute 4")
    assert in_top(scene) != [] and in_metrics(scene)[1] == {"backlog"}
    monkeypatch.setenv("PGSCHED_BACKLOG_S", "soon")
    for command in (("status",), ("check",), ("worker", "--health", "127.0.0.1:0")):
        said = scene.pgsched(*command)
        assert said.code == 2, command
        assert "PGSCHED_BACKLOG_S: 'soon': expected SECONDS or QUEUE=SECONDS" in said.out + said.err


def test_a_role_that_may_not_read_alerts_gets_the_other_problems(scene: Scene, logins: Any) -> None:
    a_limit_of_0(scene)
    logins.connect("alice").execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    said = scene.pgsched("status", "--json", "--dsn", logins.dsn("alice"))
    assert said.code == 1
    assert [timeless(one) for one in said.json["problems"]] != []
