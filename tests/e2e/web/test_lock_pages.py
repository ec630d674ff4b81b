"""The console shows who holds a lock and who waits for it, and takes one from its holder; so does the JSON API."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.support.recipes.holding import asked, opened
from tests.support.web.console import TOKEN, Browser

NAME = "a/b <i>?&%"


@pytest.fixture
def fence(db: psycopg.Connection[Any]) -> int:
    """The fence of the session `web-1`, which holds a lock with an odd name; `web-2` waits for it."""
    first, second = opened(db, name="web-1"), opened(db, name="web-2")
    found = asked(db, NAME, first, note="<b>November</b>")
    asked(db, NAME, second)
    asked(db, "leader", second, kind="election")
    assert found is not None
    return found


def words(text: str) -> str:
    """Return the text of a page without its markup."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def line_of(browser: Browser, name: str = NAME) -> str:
    answer = browser.get("/locks", params={"name": name})
    assert answer.status_code == 200
    return words(answer.text.partition('id="chosen"')[2].partition("</section>")[0])


@pytest.mark.usefixtures("fence")
def test_locks_are_listed_with_a_link_to_their_lines(browser: Browser) -> None:
    page = browser.get("/locks").text
    assert "a/b &lt;i&gt;?&amp;% lock web-1" in words(page)
    assert "leader election web-2" in words(page)
    assert "ago 1, for" in words(page)
    link = re.search(r'href="(/locks\?name=[^"]*)"', page)
    assert link is not None
    assert "waits web-2" in words(browser.get(link[1]).text)
    assert "leader election" not in words(browser.get("/locks?prefix=a").text)
    assert "No lock in use begins with “z”." in browser.get("/locks?prefix=z").text
    assert re.search(r'href="/locks" aria-current="page"', page), "it is in the navigation"


@pytest.mark.usefixtures("fence")
def test_the_line_of_a_lock_is_shown_in_its_order(browser: Browser) -> None:
    shown = line_of(browser)
    assert shown.index("holds web-1") < shown.index("waits web-2")
    assert "&lt;b&gt;November&lt;/b&gt;" in shown


def test_a_broken_lock_goes_to_the_next_in_line(browser: Browser, db: psycopg.Connection[Any], fence: int) -> None:
    answer = browser.post("/locks/break", {"name": NAME, "fence": str(fence)})
    assert answer.status_code == 200
    assert "was taken from 1 holder." in answer.text
    assert "holds web-2" in line_of(browser)
    audit = "SELECT action, what, name, change ->> 'session' FROM pgsched.audit"
    assert db.execute(audit).fetchall() == [("broken", "lock", NAME, "web-1")]
    # the button of a page that is not up to date
    again = browser.post("/locks/break", {"name": NAME, "fence": str(fence)})
    assert f"with fence {fence}." in again.text
    assert "holds web-2" in line_of(browser), "the next holder keeps it"


def test_a_break_names_the_fence_and_needs_the_token_of_the_page(
    browser: Browser, db: psycopg.Connection[Any], fence: int
) -> None:
    for form in ({}, {"fence": "0"}, {"fence": "all"}, {"fence": "9" * 30}):
        assert browser.post("/locks/break", {"name": NAME} | form).status_code == 422, form
    forged = browser.post("/locks/break", {"name": NAME, "fence": str(fence), "csrf": "x"})
    assert forged.status_code == 403
    assert "holds web-1" in line_of(browser)


def test_who_may_only_look_has_no_button(console: Callable[..., Browser], fence: int) -> None:
    reader = console(read_only=True)
    assert "holds web-1" in line_of(reader)
    assert "/locks/break" not in reader.get("/locks", params={"name": NAME}).text
    assert reader.post("/locks/break", {"name": NAME, "fence": str(fence)}).status_code == 403


@pytest.mark.usefixtures("fence")
def test_a_lock_that_there_is_not(browser: Browser) -> None:
    answer = browser.get("/locks?name=leade")
    assert answer.status_code == 404
    assert "did you mean leader?" in answer.text


def test_the_api_lists_shows_and_breaks_locks(console: Callable[..., Browser], fence: int) -> None:
    client, bearer = console(token=TOKEN).client, {"authorization": f"Bearer {TOKEN}"}

    def ask(method: str, path: str, **more: Any) -> Any:
        return client.request(method, f"/api/v1{path}", headers=bearer, **more)

    assert [one["name"] for one in ask("GET", "/locks").json()["locks"]] == [NAME, "leader"]
    assert [one["name"] for one in ask("GET", "/locks?kind=election").json()["locks"]] == ["leader"]
    assert [one["name"] for one in ask("GET", "/locks?limit=1&after=b").json()["locks"]] == ["leader"]
    found = ask("GET", "/locks/a%2Fb%20%3Ci%3E%3F%26%25").json()
    assert (found["lock"]["fence"], [one["session"] for one in found["waiting"]]) == (fence, ["web-2"])
    done = ask("POST", "/locks/break", json={"name": NAME, "fence": fence})
    assert done.json() == {"name": NAME, "broken": 1}
    assert ask("POST", "/locks/break", json={"name": "leade"}).status_code == 404
    assert ask("GET", "/locks/leade").status_code == 404
