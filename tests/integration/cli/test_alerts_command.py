"""`pgsched alerts`, and the delivery of alerts to a webhook, a program and a log."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.config import AlertSettings, LeaderSettings, Settings
from pgsched.leader.alerting import incidents
from pgsched.leader.election import Leader
from pgsched.services import alerts as alert_services
from pgsched.worker.alerts import alerting
from tests.support.db.alerting import check, incident, slot
from tests.support.waiting import wait_until

Call = Callable[..., Any]


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any]]]:
    """Yield the URL of a webhook, and the requests that it received, each with its idempotency key."""
    told: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.append((self.headers["Idempotency-Key"], body))
            self.send_response(500 if len(told) == 1 and "flaky" in self.path else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", told
    server.shutdown()
    server.server_close()


def test_open_alerts_are_listed_and_set_the_exit_code(pgsched: Call, db: psycopg.Connection) -> None:
    said = pgsched("alerts")
    assert (said.code, said.out) == (0, "no alerts\n")
    mine = incident(db)
    said = pgsched("alerts")
    assert (said.code, "failures" in said.out, "1 of its runs in a row failed" in said.out) == (1, True, True)
    assert pgsched("alerts", "--json").json[0]["job"] == "j"
    slot(db, mine, 0.5, "succeeded")
    check(db)
    assert (pgsched("alerts").code, pgsched("alerts").out) == (0, "no alerts\n")
    assert "a run succeeded" in pgsched("alerts", "--all").out


def test_a_leader_delivers_alerts_to_its_webhook_program_and_log(
    db: psycopg.Connection, dsn: str, hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, told = hook
    monkeypatch.setattr(incidents, "EVERY_S", 0.1)
    monkeypatch.setattr(incidents, "UNWATCHED_S", 0.1)
    monkeypatch.setattr("pgsched.leader.duties.housekeeping.EVERY_S", 0.1)
    file = tmp_path / "told"
    settings = AlertSettings((f"{url}/flaky?key=secret",), (f"/bin/sh -c 'cat >> {file}; echo >> {file}'",))
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1), "test")
    thread = threading.Thread(target=leader.run, daemon=True)
    with alerting(Settings(dsn, alerts=settings), leader, stands=True):
        thread.start()
        mine = incident(db)
        wait_until(lambda: len(told) >= 2, timeout=30, what="the webhook to be told again after a failure")
        slot(db, mine, 0.5, "succeeded")
        wait_until(lambda: len(told) >= 3, timeout=30, what="the webhook to be told of the end")
        wait_until(lambda: file.exists() and file.read_text().count("\n") >= 2, timeout=30, what="the program")
        wait_until(
            lambda: db.execute("SELECT count(delivered_at) FROM pgsched.alert_deliveries").fetchone() == (6,),
            timeout=30,
            what="all to be noted",
        )
        leader.stop()
        thread.join(20)
    keys, bodies = [key for key, _ in told], [body for _, body in told]
    assert keys[0] == keys[1] == f"{bodies[0]['id']}-opened"
    assert keys[2] == f"{bodies[0]['id']}-closed"
    assert bodies[1]["text"] == "[alert] job j: failures: 1 of its runs in a row failed, the last with: broke"
    events = [json.loads(line)["event"] for line in file.read_text().splitlines() if line]
    assert events == ["opened", "closed"]
    sinks = {row[0].rsplit(" ", 1)[0] for row in db.execute("SELECT sink FROM pgsched.alert_deliveries")}
    assert sinks == {"log", "webhook 127.0.0.1", "command sh"}


def test_a_test_alert_reports_the_result_of_each_delivery(pgsched: Call, hook: Any) -> None:
    url, told = hook
    said = pgsched("alerts", "test", "--alert-webhook", url)
    assert (said.code, [body["event"] for _, body in told]) == (0, ["opened", "closed"])
    assert said.out.count("delivered") == 2
    said = pgsched("alerts", "test", "--alert-command", "/bin/false", "--json")
    assert (said.code, said.json["told"][0]["error"]) == (1, "exit code 1: it says nothing")
    said = pgsched("alerts", "test", "--alert-webhook", "http://127.0.0.1:1/")
    assert (said.code, "Connection refused" in said.out) == (1, True)


def test_a_test_alert_goes_to_what_the_command_line_says_and_to_nothing_else(
    pgsched: Call, hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of a shell has sinks as well: those of the leader."""
    url, told = hook
    asked: list[Any] = []
    monkeypatch.setenv("PGSCHED_ALERT_COMMAND", "/bin/false")
    monkeypatch.setenv("PGSCHED_ALERT_WEBHOOK", f"{url}/moved")
    said = pgsched("alerts", "test", "--alert-webhook", f"{url}/given", "--json")
    assert [one["sink"].split()[0] for one in said.json["told"]] == ["webhook", "webhook"]
    pgsched("alerts", "test", "--alert-webhook", "PGSCHED_ALERT_WEBHOOK", "--json")
    assert len(told) == 4, "the command line puts the URL into that variable"
    monkeypatch.setattr(alert_services, "deliver_test_by_leader", lambda _: asked.append("leader") or [])
    assert pgsched("alerts", "test").code == 1
    assert (asked, len(told)) == (["leader"], 4)


@pytest.mark.long
def test_a_test_alert_goes_through_the_sinks_of_the_leader(
    pgsched: Call, dsn: str, hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, told = hook
    monkeypatch.setattr("pgsched.leader.duties.housekeeping.EVERY_S", 0.1)
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1), "test")
    thread = threading.Thread(target=leader.run, daemon=True)
    with alerting(Settings(dsn, alerts=AlertSettings((url,))), leader, stands=True):
        thread.start()
        said = pgsched("alerts", "test")
        leader.stop()
        thread.join(20)
    assert (said.code, said.out.count("delivered")) == (0, 4), said.out
    assert [body["event"] for _, body in told] == ["opened", "closed"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--alert-webhook", "hooks.example"), "alert-webhook: expected a URL"),
        (("--alert-command", "'"), "alert-command: expected a program"),
    ],
)
def test_an_invalid_alert_sink_stops_the_start_with_one_line(pgsched: Call, args: tuple[str, ...], said: str) -> None:
    for verb in ("worker", "leader"):
        found = pgsched(verb, *args)
        assert (found.code, said in found.err, found.err.count("\n")) == (2, True, 1), found.err


def test_the_defaults_are_shown_and_set(pgsched: Call, db: psycopg.Connection) -> None:
    said = pgsched(
        "alerts", "defaults", "--finish-by", "6 hours", "--dead-runs", "20", "--alert-to", "mail, ops", "--json"
    )
    assert {name: said.json[name] for name in ("dead_runs", "alert_to", "max_lateness")} == {
        "dead_runs": 20, "alert_to": ["mail", "ops"], "max_lateness": None,
    }  # fmt: skip
    assert db.execute("SELECT finish_by::text, dead_runs_within::text FROM pgsched.alert_defaults").fetchall() == [
        ("06:00:00", "01:00:00")
    ]
    pgsched("alerts", "defaults", "--finish-by", "", "--alert-to", "")
    assert db.execute("SELECT finish_by, alert_to, dead_runs FROM pgsched.alert_defaults").fetchall() == [
        (None, None, 20)
    ]
    pgsched("alerts", "defaults", "--dead-runs-within", "5 minutes", "--alert-to", "{}")
    pgsched("alerts", "defaults", "--dead-runs-within", "")
    assert db.execute("SELECT alert_to, dead_runs_within::text FROM pgsched.alert_defaults").fetchall() == [
        ([], "01:00:00")
    ]
    assert pgsched("alerts", "defaults").code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--dead-runs", "0"), "dead_runs: 0 is out of range"),
        (("--max-lateness", "soon", "--finish-by", "1 hour"), "max_lateness: invalid input syntax"),
        (("--dead-runs", "x", "--alert-after-failures", "3"), "dead_runs: invalid input syntax"),
        (("--alert-to", "mailto://me@example.com"), "alert_to: "),
    ],
)
def test_wrong_defaults_are_refused_by_the_command(pgsched: Call, options: tuple[str, ...], said: str) -> None:
    done = pgsched("alerts", "defaults", *options)
    assert done.code == 2
    assert said in done.err
