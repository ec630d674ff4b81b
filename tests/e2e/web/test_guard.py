"""Access to the console: logins, the origin of changes, readers, and trusted proxies."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable

import pytest

from pgsched.errors import InputError
from pgsched.web.security import secrets
from pgsched.web.settings import Settings, parse_networks
from tests.support.web.console import READER, TOKEN, Browser

HASH = secrets.parse_hash(secrets.hash_password("correct horse"))
Console = Callable[..., Browser]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "console.example"])
def test_the_console_listens_beyond_loopback_only_with_authentication(host: str) -> None:
    with pytest.raises(InputError, match="can be reached from elsewhere"):
        Settings("", host)
    Settings("", host, token=TOKEN)
    Settings("", host, password=HASH)
    Settings("", host, proxy_header="x-user", proxies=parse_networks(["10.0.0.0/8"]))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_on_loopback_the_console_needs_no_authentication(host: str) -> None:
    assert not Settings("", host).authenticates


def test_settings_that_protect_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="shorter than 16"):
        Settings("", token="short")
    with pytest.raises(InputError, match="need each other"):
        Settings("", proxy_header="x-user")
    with pytest.raises(InputError, match="password hash"):
        secrets.parse_hash("plain text")
    with pytest.raises(InputError, match="trusted proxy"):
        parse_networks(["nowhere"])


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "localhost.evil.example", "[::2]"])
def test_a_foreign_host_name_that_resolves_to_this_machine_is_not_served(browser: Browser, host: str) -> None:
    assert browser.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080"])
def test_names_of_this_machine_are_served(browser: Browser, host: str) -> None:
    assert browser.get("/", headers={"host": host}).status_code == 200


def test_every_answer_forbids_scripts_of_others_and_frames(browser: Browser) -> None:
    for path in ("/", "/static/live.js", "/nothing", "/api/nothing", "/login"):
        policy = browser.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert browser.get(path).headers["x-content-type-options"] == "nosniff"


def test_an_answer_to_too_many_guesses_has_the_same_headers(console: Console) -> None:
    browser = console(token=TOKEN, hosts=("localhost",))
    guess = {"authorization": "Bearer wrong"}
    while (answer := browser.get("/jobs", headers=guess)).status_code != 429:
        assert answer.status_code == 303
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY" and answer.headers["cache-control"] == "no-store"
    assert browser.get("/jobs", headers=guess | {"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("referer", ["http://[", "http://[::1", "//[x]/", "http://localhost/[", "\\\\[", ""])
def test_a_malformed_referer_changes_no_answer(browser: Browser, referer: str) -> None:
    assert browser.get("/jobs", headers={"referer": referer}).status_code == 200
    assert browser.get("/nothing", headers={"referer": referer}).status_code == 404
    assert browser.post("/job/pause/none", referer=referer).status_code == 404


def test_the_cookie_is_for_this_site_and_not_for_scripts(browser: Browser) -> None:
    cookie = browser.get("/").headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie


# ---- changes


def change(browser: Browser, form: dict[str, str] | None = None, **headers: str) -> int:
    """Return the status of a change. It is /logout, which every visitor may call and which changes nothing else."""
    token = {"csrf": browser.csrf()}
    given = {"origin": "http://localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
    answer = browser.client.post("/logout", data=token | (form or {}), headers=given, follow_redirects=False)
    return int(answer.status_code)


def test_a_change_from_one_of_our_pages_is_made(browser: Browser) -> None:
    assert change(browser) == 303


@pytest.mark.parametrize("token", ["", "x", "A" * 43])
def test_a_change_without_the_pages_token_is_refused(browser: Browser, token: str) -> None:
    assert change(browser, {"csrf": token}) == 403


def test_the_token_of_another_browser_is_refused(console: Console) -> None:
    browser, other = console(token=TOKEN), console(token=TOKEN)
    for one in (browser, other):
        one.post("/login", {"secret": TOKEN})
    assert change(browser, {"csrf": other.csrf()}) == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "http://localhost.evil.example"]
)
def test_a_change_from_a_page_of_another_origin_is_refused(browser: Browser, origin: str) -> None:
    assert change(browser, origin=origin) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_change_that_the_browser_says_is_from_another_site_is_refused(browser: Browser, site: str) -> None:
    assert change(browser, sec_fetch_site=site) == 403


def test_a_form_in_another_encoding_is_refused(browser: Browser) -> None:
    assert change(browser, content_type="text/plain") == 415


def test_a_body_that_is_too_large_is_refused(browser: Browser) -> None:
    assert change(browser, {"more": "x" * (5 << 20)}) == 413


def test_a_form_of_more_fields_than_any_page_has_is_refused_unread(browser: Browser) -> None:
    many = {f"f{i}": "" for i in range(20_000)}
    assert change(browser, many) == 413


# ---- logins


def test_without_a_token_no_page_is_shown(console: Console) -> None:
    browser = console(token=TOKEN)
    answer = browser.get("/runs?state=dead")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fruns%3Fstate%3Ddead")
    assert browser.get("/api/v1/status").status_code == 401
    assert browser.get("/api/v1/status").headers["www-authenticate"] == "Bearer"


def test_a_login_with_the_token_leads_to_the_requested_page(console: Console) -> None:
    browser = console(token=TOKEN)
    answer = browser.client.post("/login", data={"csrf": browser.csrf(), "secret": TOKEN, "next": "/?range=6h"},
                                 headers={"origin": "http://localhost"}, follow_redirects=False)  # fmt: skip
    assert (answer.status_code, answer.headers["location"]) == (303, "/?range=6h")
    assert browser.get("/").status_code == 200
    browser.post("/logout")
    assert browser.get("/").status_code == 303


@pytest.mark.parametrize("place", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nx: y"])
def test_the_login_leads_to_no_other_site(console: Console, place: str) -> None:
    browser = console(token=TOKEN)
    answer = browser.client.post("/login", data={"csrf": browser.csrf(), "secret": TOKEN, "next": place},
                                 headers={"origin": "http://localhost"}, follow_redirects=False)  # fmt: skip
    assert answer.headers["location"] == "/"


def test_a_login_begins_a_new_session(console: Console) -> None:
    browser = console(token=TOKEN)
    before = browser.csrf()
    browser.post("/login", {"secret": TOKEN})
    assert browser.csrf("/") != before


@pytest.mark.parametrize("wrong", ["", "x", TOKEN[:-1], TOKEN + "x", "ü"])
def test_a_wrong_token_does_not_log_in(console: Console, wrong: str) -> None:
    browser = console(token=TOKEN)
    assert browser.post("/login", {"secret": wrong}).status_code == 403
    assert browser.get("/").status_code == 303


def test_only_the_right_password_logs_in(console: Console) -> None:
    browser = console(password=HASH)
    assert browser.post("/login", {"secret": "incorrect horse"}).status_code == 403
    assert browser.post("/login", {"secret": "correct horse"}).status_code == 200
    assert browser.get("/").status_code == 200


def signer(browser: Browser) -> secrets.Signer:
    found: secrets.Signer = browser.client.app.app.state.signer  # type: ignore[attr-defined]
    return found


def test_too_many_guesses_block_the_right_token_too(console: Console) -> None:
    browser = console(token=TOKEN)
    answers = [browser.post("/login", {"secret": f"guess {n}"}).status_code for n in range(11)]
    assert answers == [403] * 10 + [429]
    assert browser.post("/login", {"secret": TOKEN}).status_code == 429


def test_a_forged_changed_or_expired_cookie_is_refused(console: Console) -> None:
    browser = console(token=TOKEN)
    mine, mark = signer(browser), signer(browser).mark("write", TOKEN)
    forged = secrets.Signer(b"another key").cookie(secrets.new_session(mark))
    text, mac = mine.cookie(secrets.new_session("none")).split(".")
    raised = secrets.encode_base64(secrets.decode_base64(text).replace(b'"none"', f'"{mark}"'.encode()))
    ended = mine.cookie(secrets.Session("x", mark, 1.0))
    for cookie in (forged, f"{raised}.{mac}", ended, "", ".", "x.y"):
        assert browser.get("/", headers={"cookie": f"pgsched_session={cookie}"}).status_code == 303
    good = mine.cookie(secrets.new_session(mark))
    assert browser.get("/", headers={"cookie": f"pgsched_session={good}"}).status_code == 200


def test_a_reader_changes_nothing(console: Console) -> None:
    browser = console(token=TOKEN, reader_token=READER)
    browser.post("/login", {"secret": READER})
    assert "read only" in browser.get("/").text
    assert browser.post("/job/pause/x").status_code == 403
    assert (
        browser.client.post("/api/v1/jobs", headers={"authorization": f"Bearer {READER}"}, json={}).status_code == 403
    )


def test_a_read_only_console_refuses_every_change(console: Console) -> None:
    browser = console(read_only=True)
    assert browser.get("/").status_code == 200
    assert browser.post("/job/pause/x").status_code == 403


def test_the_user_header_counts_only_from_the_trusted_proxy(console: Console) -> None:
    settings = {"proxy_header": "x-user", "proxies": (ipaddress.ip_network("10.0.0.0/8"),)}
    says = {"headers": {"x-user": "ada"}}
    assert console("10.1.2.3", **settings).get("/", **says).status_code == 200
    assert "ada" in console("10.1.2.3", **settings).get("/", **says).text
    assert console("10.1.2.3", **settings).get("/").status_code == 401
    two = {"headers": [("x-user", "eve"), ("x-user", "ada")]}
    assert console("10.1.2.3", **settings).get("/", **two).status_code == 401
    assert console("192.0.2.1", **settings).get("/", **says).status_code == 401


def test_the_reader_s_token_cannot_forge_a_cookie_that_may_write(console: Console) -> None:
    for settings in ({"reader_token": READER}, {"reader_token": READER, "password": HASH}):
        browser = console(**settings)
        forged = secrets.Signer(hashlib.sha256(READER.encode()).digest()).cookie(secrets.new_session(READER))
        assert browser.get("/", headers={"cookie": f"pgsched_session={forged}"}).status_code == 303
        reader = signer(browser).cookie(secrets.new_session(signer(browser).mark("read", READER)))
        headers = {"cookie": f"pgsched_session={reader}"}
        assert "read only" in browser.get("/", headers=headers).text


def test_behind_https_the_cookies_are_for_https_alone(console: Console) -> None:
    assert "secure" not in console(token=TOKEN).get("/login").headers["set-cookie"].lower()
    browser = console(token=TOKEN, https=True)
    assert "secure" in browser.get("/login").headers["set-cookie"].lower()
    assert "__Host-pgsched_session=" in browser.get("/login").headers["set-cookie"]
    assert browser.get("/login").headers["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" not in console(token=TOKEN).get("/login").headers
    browser.client.base_url = "https://localhost"
    browser.client.post("/login", data={"csrf": browser.csrf(), "secret": TOKEN},
                        headers={"origin": "https://localhost"}, follow_redirects=False)  # fmt: skip
    assert browser.get("/").status_code == 200
