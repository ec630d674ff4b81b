"""Sessions and logins: where and how long a session counts, and how often a secret may be guessed."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgsched.web.security import keys, login, secrets
from pgsched.web.security.guesses import MAX_TOKEN_GUESSES, Guesses, address_of
from tests.support.web.console import READER, TOKEN, Browser

HASH = secrets.parse_hash(secrets.hash_password("correct horse"))
Console = Callable[..., Browser]


def logged_in(browser: Browser, secret: str = TOKEN) -> str:
    """Log in, and return the cookie of the session."""
    browser.post("/login", {"secret": secret})
    return str(browser.client.cookies["pgsched_session"])


def with_cookie(browser: Browser, cookie: str) -> int:
    browser.client.cookies.clear()
    return int(browser.get("/", headers={"cookie": f"pgsched_session={cookie}"}).status_code)


def test_cookies_are_not_signed_with_the_token(console: Console) -> None:
    first, second = console(token=TOKEN), console(token=TOKEN)
    cookie = logged_in(first)
    assert with_cookie(second, cookie) == 303, "the same token, another key"


def test_two_consoles_with_one_home_keep_the_logouts_of_both(console: Console, tmp_path: Path) -> None:
    both = [console(token=TOKEN, home=tmp_path / "home") for _ in range(2)]
    cookies = [logged_in(each) for each in both]
    for each in both:
        each.post("/logout")
    later = console(token=TOKEN, home=tmp_path / "home")
    assert [with_cookie(later, cookie) for cookie in cookies] == [303, 303]


def test_sessions_and_forms_survive_a_restart_of_the_console(console: Console, tmp_path: Path) -> None:
    first = console(token=TOKEN, home=tmp_path / "home")
    cookie, csrf = logged_in(first), first.csrf("/")
    second = console(token=TOKEN, home=tmp_path / "home")
    assert with_cookie(second, cookie) == 200
    headers = {"cookie": f"pgsched_session={cookie}", "origin": "http://localhost"}
    form = {"csrf": csrf, "what": "all"}
    answer = second.client.post("/pauses/begin", data=form, headers=headers, follow_redirects=False)
    assert answer.status_code == 303
    assert stat.S_IMODE((tmp_path / "home" / "web.key").stat().st_mode) == 0o600


def test_a_logout_also_ends_copies_of_the_cookie(console: Console, tmp_path: Path) -> None:
    browser = console(token=TOKEN, home=tmp_path / "home")
    cookie = logged_in(browser)
    browser.post("/logout")
    assert with_cookie(browser, cookie) == 303
    assert with_cookie(console(token=TOKEN, home=tmp_path / "home"), cookie) == 303, "after a restart"


def test_a_changed_token_ends_the_sessions_of_the_old_token(console: Console, tmp_path: Path) -> None:
    settings = {"token": TOKEN, "reader_token": READER, "home": tmp_path / "home"}
    reader = logged_in(console(**settings), READER)
    assert with_cookie(console(**settings), reader) == 200
    assert with_cookie(console(**settings | {"reader_token": READER + "2"}), reader) == 303
    assert with_cookie(console(**settings | {"token": READER, "reader_token": None}), reader) == 303, "nobody is raised"


@pytest.mark.parametrize("spoil", ["link", "readable", "short", "folder"])
def test_a_key_that_others_may_know_is_not_used(tmp_path: Path, spoil: str) -> None:
    home = tmp_path / "home"
    key = keys.key_of(home)
    file = home / "web.key"
    if spoil == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    elif spoil == "readable":
        file.chmod(0o644)
    elif spoil == "short":
        file.write_bytes(key[:8])
    else:
        home.chmod(0o777)
    assert keys.key_of(home) != key
    assert len(keys.key_of(home)) == keys.SIZE


def test_consoles_with_one_home_share_one_key(tmp_path: Path) -> None:
    assert keys.key_of(tmp_path / "home") == keys.key_of(tmp_path / "home")
    assert keys.key_of(None) != keys.key_of(None)


def test_the_folder_of_the_key_may_be_entered_by_the_account_of_the_embedded_server(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        keys.key_of(tmp_path / "home")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "home" / "web.key").stat().st_mode) == 0o600


def test_without_a_usable_folder_there_is_still_a_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(keys.key_of(tmp_path / "file" / "home")) == keys.SIZE


# ---- guesses


async def guess(app: Any, secret: str, client: tuple[str, int] = ("192.0.2.7", 1)) -> int:
    """Return the status of a login, without a thread of this test in between."""
    got: dict[str, int] = {}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            got["status"] = message["status"]

    session = secrets.Session("x", "", 2.0**40)
    signer = app.app.state.signer
    headers = [(b"host", b"localhost"), (b"content-type", b"application/x-www-form-urlencoded"),
               (b"cookie", f"pgsched_session={signer.cookie(session)}".encode())]  # fmt: skip
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": "/login",
             "query_string": b"", "headers": headers, "client": client, "server": ("localhost", 80)}  # fmt: skip
    body = f"csrf={signer.csrf(session)}&secret={secret}".encode()
    await app(scope, receive, send)
    return got["status"]


def test_concurrent_guesses_are_limited_like_guesses_in_turn(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    app: Any = console(password=HASH).client.app
    now, most, hashed = [0], [0], []

    def fits(self: secrets.Password, password: str) -> bool:
        now[0] += 1
        most[0] = max(most[0], now[0])
        hashed.append(password)
        now[0] -= 1
        return False

    monkeypatch.setattr(secrets.Password, "fits", fits)
    monkeypatch.setattr(login, "MOST_WAITING", 1000)  # so that this other limit has no effect here

    async def main() -> list[int]:
        return await asyncio.gather(*(guess(app, f"guess{n}") for n in range(100)))

    answers = asyncio.run(main())
    assert len(hashed) <= 10 and most == [1]
    assert answers.count(429) >= 90 and set(answers) <= {403, 429}


def test_one_address_that_guesses_locks_out_no_other(console: Console) -> None:
    app: Any = console(token=TOKEN).client.app

    async def main() -> tuple[list[int], int, int]:
        wrong = [await guess(app, "wrong") for _ in range(11)]
        return wrong, await guess(app, TOKEN), await guess(app, TOKEN, ("198.51.100.2", 1))

    wrong, same, other = asyncio.run(main())
    assert wrong == [403] * 10 + [429] and (same, other) == (429, 303)


def test_successful_logins_do_not_count_as_guesses(console: Console) -> None:
    browser = console(token=TOKEN)
    for _ in range(12):
        assert browser.post("/login", {"secret": TOKEN}).status_code == 200


def test_guesses_of_bearer_tokens_are_limited_too(console: Console) -> None:
    browser = console(token=TOKEN)

    def ask(token: str) -> int:
        return int(browser.get("/api/v1/jobs", headers={"authorization": f"Bearer {token}"}).status_code)

    assert [ask(TOKEN) for _ in range(MAX_TOKEN_GUESSES + 5)] == [200] * (MAX_TOKEN_GUESSES + 5)
    assert [ask(f"wrong {n}") for n in range(MAX_TOKEN_GUESSES)] == [401] * MAX_TOKEN_GUESSES
    assert ask(TOKEN) == 429


STRONG = "3f9c0a7be24d5816" * 2  # as `openssl rand -hex 16` makes them


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("settings", "secret", "then"),
    [
        ({"token": STRONG}, STRONG, 303),
        ({"named_tokens": (("ann", STRONG),), "password": HASH}, STRONG, 303),
        ({"token": TOKEN, "reader_token": STRONG}, STRONG, 303),
        ({"token": TOKEN}, TOKEN, 429),  # short, so perhaps chosen by a person
        ({"token": "letmein" * 8}, "letmein" * 8, 429),  # long, but not random
        ({"password": HASH}, "correct horse", 429),
    ],
)
def test_guesses_of_other_clients_block_only_secrets_that_can_be_guessed(
    console: Console, settings: dict[str, Any], secret: str, then: int
) -> None:
    """Behind a proxy that ends TLS all clients have the proxy's address."""
    app: Any = console(**settings).client.app

    async def main() -> tuple[list[int], int, int]:
        wrong = [await guess(app, "wrong") for _ in range(11)]
        return wrong, await guess(app, secret), await guess(app, "wrong")

    assert asyncio.run(main()) == ([403] * 10 + [429], then, 429)


def test_a_strong_token_does_not_wait_for_password_hashes(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    app: Any = console(token=STRONG, password=HASH).client.app
    monkeypatch.setattr(login, "MOST_WAITING", 0)
    assert asyncio.run(guess(app, "wrong")) == 429
    assert asyncio.run(guess(app, STRONG)) == 303


def test_guesses_of_other_clients_do_not_block_a_strong_bearer_token(console: Console) -> None:
    browser = console(token=STRONG)

    def ask(token: str) -> int:
        return int(browser.get("/api/v1/jobs", headers={"authorization": f"Bearer {token}"}).status_code)

    assert [ask(f"{n:032x}") for n in range(MAX_TOKEN_GUESSES)] == [401] * MAX_TOKEN_GUESSES
    assert [ask(STRONG) for _ in range(3)] == [200] * 3
    assert ask(f"wrong{STRONG}") == 429, "and it made no place for further guesses"


def test_ipv6_addresses_of_one_network_count_as_one_address() -> None:
    assert address_of(("2001:db8::1", 1)) == address_of(("2001:db8::2", 1)) != address_of(("2001:db8:1::1", 1))
    assert address_of(("::ffff:192.0.2.1", 1)) == address_of(("192.0.2.1", 9)) == "192.0.2.1"
    assert address_of(None) == ""


def test_the_number_of_remembered_addresses_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgsched.web.security.guesses.MOST_ADDRESSES", 3)
    guesses = Guesses(1)
    assert [guesses.begin(f"192.0.2.{n}") for n in range(5)] == [True] * 5
    assert guesses.begin("192.0.2.0") and not guesses.begin("192.0.2.4")


def test_the_token_in_the_printed_address_logs_in(console: Console) -> None:
    browser = console(token=TOKEN)
    assert browser.get("/login?token=wrong").status_code == 403
    answer = browser.get(f"/login?token={TOKEN}&next=/runs")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs")
    assert browser.get("/runs").status_code == 200


def test_a_form_of_an_old_page_is_offered_again_with_its_fields(console: Console) -> None:
    browser = console(token=TOKEN)
    logged_in(browser)
    form = {"csrf": "of another console", "what": "all", "reason": 'a "fire" & <smoke>\r\nsince noon'}
    answer = browser.client.post("/pauses/begin", data=form, headers={"origin": "http://localhost"})
    assert answer.status_code == 403 and answer.headers["content-type"].startswith("text/html")
    assert 'name="reason" value="a &#34;fire&#34; &amp; &lt;smoke&gt;' in answer.text and "Send it again" in answer.text
    assert "of another console" not in answer.text
    assert browser.get("/").text.count("is paused by") == 0, "nothing was done yet"
    fresh = dict(form, csrf=browser.csrf("/"))
    assert browser.client.post("/pauses/begin", data=fresh, headers={"origin": "http://localhost"}).status_code == 200
    unknown = browser.client.post("/pauses/begin", data=form)
    assert unknown.status_code == 403 and "Send it again" not in unknown.text, "it may be another site's"


def test_an_error_leads_back_to_the_page_before(console: Console) -> None:
    browser = console()
    answer = browser.post("/queues/save", {"name": "mail", "rate": "often"}, referer="http://localhost/queues?x=1")
    assert str(answer.request.url).endswith("/queues?x=1") and "That did not work: rate" in answer.text
    lost = browser.get("/runs/4711", headers={"referer": "http://localhost/queues?x=1"})
    assert lost.status_code == 404 and 'href="/queues?x=1"' in lost.text
    for other in ("http://evil.example/queues", "", "javascript:alert(1)", "http://localhost//evil.example"):
        text = browser.post("/queues/save", {"name": "mail", "rate": "often"}, referer=other).text
        assert "evil" not in text and "javascript" not in text and "Back to where" not in text
