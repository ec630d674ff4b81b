"""HTTP jobs connect only to public or allowed addresses, and to the address that was checked.

A name is resolved once for each request, so that a name server cannot change its answer after the check.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import pytest

from pgsched.core.model import Outcome, Result
from pgsched.errors import InputError
from pgsched.execute.http import client
from pgsched.execute.http.allowlist import AllowList, Forbidden, filter_permitted, is_public
from pgsched.execute.http.executor import HttpExecutor
from tests.support.executing import claim, execute
from tests.support.http.answering import answer, serving


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.255.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
     "169.254.0.1", "0.0.0.0", "0.1.2.3", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16", "224.0.0.1",
     "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
     "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1",
     "3fff::1", "3fff:fff::1", "5f00::1",
     "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1",
     "2002:7f00:1::", "2002:a00:1::1", "2001::1", "100::1"],
)  # fmt: skip
def test_private_and_special_addresses_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"],
)  # fmt: skip
def test_ordinary_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("entry", "host", "port", "address", "allowed"),
    [
        ("10.0.0.0/8", "x", 80, "10.9.9.9", True),
        ("10.0.0.0/8", "x", 80, "11.0.0.1", False),
        ("10.0.0.0/8", "x", 80, "::ffff:10.0.0.1", True),
        ("10.0.0.5", "x", 80, "10.0.0.5", True),
        ("10.0.0.5", "x", 80, "10.0.0.6", False),
        ("10.0.0.5:8080", "x", 8080, "10.0.0.5", True),
        ("10.0.0.5:8080", "x", 80, "10.0.0.5", False),
        ("fd00::/8", "x", 80, "fd00::1", True),
        ("::1", "x", 80, "::1", True),
        ("[::1]:80", "x", 80, "::1", True),
        ("[::1]:80", "x", 81, "::1", False),
        ("App.Internal", "app.internal", 443, "10.0.0.1", True),
        ("app.internal", "APP.internal.", 443, "10.0.0.1", True),
        ("app.internal:443", "app.internal", 443, "10.0.0.1", True),
        ("app.internal:443", "app.internal", 80, "10.0.0.1", False),
        ("app.internal", "evil.app.internal", 80, "10.0.0.1", False),
        ("app.internal", "app.internal.evil", 80, "10.0.0.1", False),
    ],
)
def test_an_allow_list_entry_allows_only_what_it_names(
    entry: str, host: str, port: int, address: str, allowed: bool
) -> None:
    assert AllowList.read([entry]).allows(host, port, ip_address(address)) is allowed


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.internal", "10.0.0.1/8", "10.0.0", "300.1.1.1", "a b", "http://a", "a:0", "a:70000", "a:", "a/8",
     "user@a", "[::1", "[a]:80", "10.0.0.0/8:80"],
)  # fmt: skip
def test_an_invalid_allow_list_entry_is_refused(entry: str) -> None:
    with pytest.raises(InputError, match="http-allow: "):
        AllowList.read([entry])


def test_of_several_addresses_only_the_permitted_ones_are_tried() -> None:
    found = ["10.0.0.1", "8.8.8.8", "::1", "2606:4700::1"]
    assert filter_permitted("a.example", 80, found, AllowList()) == ["8.8.8.8", "2606:4700::1"]
    with pytest.raises(Forbidden, match=r"a\.example is not a public address"):
        filter_permitted("a.example", 80, ["10.0.0.1", "::1"], AllowList())


def ask(url: str, allow: list[str], **more: object) -> Outcome:
    return execute(HttpExecutor(allow, 1, **more), claim("http", url))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"]
)
def test_loopback_is_refused_in_every_spelling(host: str) -> None:
    with serving() as server:
        outcome = ask(f"http://{host}:{server.port}/", [])
        assert (outcome.result, outcome.retry) == (Result.FAILED, False)
        assert "is not a public address, and this worker has no --http-allow for it" in (outcome.error or "")
        assert server.connections == 0


def test_without_the_check_loopback_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "filter_permitted", lambda host, port, addresses, allow: list(addresses))
    with serving() as server:
        server.answers["/"] = answer()
        assert ask(server.url(), []).result is Result.SUCCEEDED


class Rebinding:
    """A name server whose first answer passes the check, and whose later answers are a forbidden address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: Any, *args: Any, **options: Any) -> Any:
        if host in ("rebind.example", b"rebind.example"):
            self.asked += 1
            host = "127.0.0.2" if self.asked == 1 else "127.0.0.1"
        return self._real(host, *args, **options)


def reached(monkeypatch: pytest.MonkeyPatch) -> tuple[str, Outcome, Outcome]:
    """Return the address that a rebinding name led to, and the outcomes of that run and of the next."""
    names = Rebinding(monkeypatch)
    with serving(address="0.0.0.0") as server:
        addresses: list[str] = []

        def say(link: socket.socket) -> None:
            addresses.append(link.getsockname()[0])
            link.sendall(answer())

        server.answers["/"] = say
        first = ask(server.url(host="rebind.example"), ["127.0.0.2"])
        asked = names.asked
        second = ask(server.url(host="rebind.example"), ["127.0.0.2"])
        assert names.asked > asked, "the next run does not ask again"
        return addresses[0], first, second


def test_a_rebinding_name_leads_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, first, second = reached(monkeypatch)
    assert (address, first.result) == ("127.0.0.2", Result.SUCCEEDED)
    assert (second.result, second.retry) == (Result.FAILED, False)


def test_connecting_by_name_after_the_check_reaches_the_forbidden_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def by_name(self: Any, host: str, port: int, until: float) -> Any:
        filter_permitted(host, port, await self._addresses(host, port), self._allow)
        return await self._sockets.connect_tcp(host, port)

    monkeypatch.setattr(client.Backend, "_connect", by_name)
    assert reached(monkeypatch)[0] == "127.0.0.1"


def test_after_a_refused_connection_the_next_address_is_tried() -> None:
    with serving(address="127.0.0.1") as server:
        server.answers["/"] = answer(body="x")
        outcome = ask(
            server.url(host="a.example"), ["127.0.0.0/8"], resolve=lambda host, port: ["127.0.0.9", "127.0.0.1"]
        )
        assert outcome.result is Result.SUCCEEDED


def test_an_unknown_host_name_is_a_failure_that_is_retried() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    outcome = ask("http://a.example/", [], resolve=unknown)
    assert outcome.retry and outcome.error == "HTTP: ConnectError: cannot resolve a.example: Name or service not known"
