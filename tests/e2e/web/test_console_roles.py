"""With the rights of a viewer the console shows every page; with those of an operator its usual changes work."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from starlette.testclient import TestClient

from pgsched.db.schema import roles
from pgsched.web.app import make_console
from pgsched.web.settings import Settings
from tests.support.logins import alone
from tests.support.web.console import Browser

pytestmark = pytest.mark.scram

PAGES = ("/", "/jobs", "/jobs/nightly", "/jobs/nightly?at=", "/job/edit/nightly", "/job/new", "/runs",
         "/runs?state=dead", "/runs/{run}", "/runs/{run}/tree", "/runs/{run}/log", "/queues", "/workers",
         "/locks", "/locks?name=payroll", "/doctor")  # fmt: skip


@pytest.fixture
def run_id(db: psycopg.Connection) -> Any:
    """The id of a run, in a database with a job and a worker, in which roles are in force."""
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 2 * * *')")
    row = db.execute("INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id").fetchone()
    db.execute("INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
               " VALUES ('w:1', 'w', 1, '0', 1, '{task}', '{t}', '1 min')")  # fmt: skip
    db.execute("SELECT pgsched.lock_acquire('payroll', gen_random_uuid(), '1 hour')")
    alone(lambda: roles.apply(db))
    assert row is not None
    return row[0]


def as_role(dsn: str, role: str) -> TestClient:
    """Return a client of a console whose database sessions have this role."""
    app = make_console(Settings(make_conninfo(dsn, options=f"-c role=pgsched_{role}")))
    return TestClient(app, base_url="http://localhost")


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_viewers_and_operators_can_read_every_page(dsn: str, run_id: int, role: str) -> None:
    with as_role(dsn, role) as client:
        for page in PAGES:
            answer = client.get(page.format(run=run_id))
            assert answer.status_code == 200, (page, answer.text[-500:])


def test_a_viewer_changes_nothing_and_is_told_so(dsn: str, db: psycopg.Connection, run_id: int) -> None:
    with as_role(dsn, "viewer") as client:
        answer = Browser(client).post(f"/runs/{run_id}/cancel")
    assert answer.status_code == 403 and "lacks a grant" in answer.text
    assert db.execute("SELECT state FROM pgsched.runs").fetchall() == [("queued",)]


def test_an_operator_can_make_the_usual_changes(dsn: str, db: psycopg.Connection, run_id: int) -> None:
    changes: dict[str, dict[str, Any]] = {
        "/job/pause/nightly": {}, "/job/resume/nightly": {}, "/job/mode/nightly": {"mode": "shadow"},
        "/job/run/nightly": {}, f"/runs/{run_id}/cancel": {}, f"/runs/{run_id}/retry": {},
        "/runs/many/do": {"verb": "cancel", "id": [run_id]}, "/queues/save": {"name": "mail", "rate": "1/s"},
        "/limits/save": {"name": "k", "concurrency": "1"}, "/limits/remove": {"name": "k"},
        "/pauses/begin": {"what": "all"}, "/pauses/end": {"what": "all"}, "/workers/1/drain": {},
        "/locks/break": {"name": "payroll", "fence": "1"},
    }  # fmt: skip
    with as_role(dsn, "operator") as client:
        browser = Browser(client)
        for path, form in changes.items():
            answer = browser.post(path, form)
            assert answer.status_code == 200, (path, answer.text[-500:])
    assert db.execute("SELECT drain_asked_at IS NOT NULL FROM pgsched.workers").fetchall() == [(True,)]
