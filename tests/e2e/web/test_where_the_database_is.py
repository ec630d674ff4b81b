"""Only visitors that may make changes see where the database is, and by which login the console connects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from starlette.testclient import TestClient

from pgsched.services import check, doctor
from pgsched.web.app import make_console
from pgsched.web.pages.doctor import LOCATING_CHECKS
from pgsched.web.settings import Settings
from tests.support.waiting import wait_until
from tests.support.web.console import READER, TOKEN, Browser

NOWHERE = "host=127.0.0.1 port=1 user=hidden_user dbname=hidden_base"
HIDDEN = ("hidden_user", "hidden_base", "127.0.0.1", "port 1")
Console = Callable[..., Browser]


@contextmanager
def nowhere(secret: str) -> Iterator[Browser]:
    """Yield a logged-in browser of a console whose database cannot be reached."""
    app = make_console(Settings(NOWHERE, token=TOKEN, reader_token=READER))
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 50_000)) as client:
        browser = Browser(client)
        browser.post("/login", {"secret": secret})
        yield browser


@pytest.mark.parametrize(("secret", "sees"), [(READER, False), (TOKEN, True)])
def test_an_error_hides_from_readers_where_the_database_is(secret: str, sees: bool) -> None:
    with nowhere(secret) as browser:
        answers = [browser.get(path) for path in ("/jobs", "/", "/api/v1/jobs")]
    assert {answer.status_code for answer in answers} == {503}
    for answer in answers:
        shown = [word for word in HIDDEN if word in answer.text]
        assert shown if sees else shown == [] and "cannot be reached" in answer.text


@pytest.mark.few(1)
@pytest.mark.parametrize(("secret", "sees"), [(READER, False), (TOKEN, True)])
def test_the_doctor_page_hides_from_readers_where_the_database_is(
    console: Console, dsn: str, db: psycopg.Connection[Any], secret: str, sees: bool
) -> None:
    browser = console(token=TOKEN, reader_token=READER)
    browser.post("/login", {"secret": secret})

    def findings() -> Any:
        return browser.get("/api/v1/doctor").json()["findings"]

    wait_until(lambda: len(findings()) > 3, 60, "the doctor's first look")
    at = conninfo_to_dict(dsn)
    words = [f"database {db.info.dbname}", f"role {db.info.user}", str(at["host"])]
    for text in (str(findings()), browser.get("/doctor").text):
        assert [word for word in words if word in text] == (words if sees else [])


def test_every_check_whose_text_names_a_place_is_listed(dsn: str, db: psycopg.Connection[Any]) -> None:
    """The checks run with and without a database. A new check that names a place must be listed."""
    found = [*doctor.doctor(dsn, {}, trend_s=0.1), *check.check(NOWHERE, {}), *check.check(None, {})]
    places = (f"database {db.info.dbname}", f"role {db.info.user}", str(conninfo_to_dict(dsn)["host"]), *HIDDEN)
    names = {one.name for one in found if any(place in one.text for place in places)}
    assert {"dsn", "connection", "grants"} <= names <= set(LOCATING_CHECKS)
