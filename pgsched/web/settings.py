"""The rule: nobody from elsewhere gets in without having shown who they are; a console that would let them does not
start."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgsched.errors import InputError
from pgsched.web.security.secrets import Password, Role, is_strong, same

SHORTEST_TOKEN = 16
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Settings:
    """How the console is reached and by whom. `token` and `password` let people in who may change things, and so does
    each of the `named` tokens, which is that of the person whose name stands before it; `reader_token` lets people in
    who may only look; `proxy_header` names a header that proxies in `proxies` put the user's name in. `hosts`: the
    names that it answers to (empty: any, which needs authentication). `https`: people come over https, which a proxy
    ends. `home`: the folder with the key that cookies are signed with (None: a key of this process alone)."""

    dsn: str
    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    named: tuple[tuple[str, str], ...] = ()
    reader_token: str | None = None
    password: Password | None = None
    proxy_header: str | None = None
    proxies: tuple[Network, ...] = ()
    read_only: bool = False
    hosts: tuple[str, ...] = ()
    every_s: float = 2.0
    https: bool = False
    home: Path | None = None

    def __post_init__(self) -> None:
        named = [("token", token) for _, token in self.named]
        for name, token in (("token", self.token), ("reader token", self.reader_token), *named):
            if token is not None and len(token) < SHORTEST_TOKEN:
                raise InputError(f"{name}: is shorter than {SHORTEST_TOKEN} characters", name)
        if (self.proxy_header is None) != (not self.proxies):
            raise InputError("trusted proxy: --trusted-proxy-header and --trusted-proxy need each other")
        if not self.authenticates and not is_loopback(self.host):
            raise InputError(
                f"host: {self.host} can be reached from elsewhere: give --token-file, --password-hash or"
                " --trusted-proxy-header with --trusted-proxy, or stay on 127.0.0.1", "host"
            )  # fmt: skip

    @property
    def authenticates(self) -> bool:
        """Does anybody have to show who they are?"""
        return any((self.token, self.named, self.reader_token, self.password, self.proxy_header))

    @property
    def cookie(self) -> str:
        """The session cookie's name. With the prefix a browser takes it over https alone, and from no other host."""
        return "__Host-pgsched_session" if self.https else "pgsched_session"

    @property
    def logs_in(self) -> bool:
        """Is there something to enter in the login form?"""
        return any((self.token, self.named, self.reader_token, self.password))

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts that requests may name; empty: any. Without authentication a page of another site, whose name was
        made to lead here, must not be served."""
        return self.hosts or (() if self.authenticates else ("localhost", "127.0.0.1", "[::1]"))

    def by_token(self, given: str) -> tuple[Role, str]:
        """What a token allows, and whose it is; all are always compared."""
        found: tuple[Role, str] = ("none", "")
        if self.reader_token and same(given, self.reader_token):
            found = ("read", "")
        for name, token in (("", self.token), *self.named):
            if token and same(given, token):
                found = ("write", name)
        return found

    def is_right_and_strong(self, given: str) -> bool:
        """Is it one of the tokens, and one that cannot be guessed? It is let in however many guesses came from its
        address, which many people may share. A password and a short token are not: a limit that the right one passes
        would let them be guessed as fast as the console answers."""
        return is_strong(given) and self.by_token(given)[0] != "none"

    def is_shared(self, address: str) -> bool:
        """Do many people come from this address? A trusted proxy's do."""
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self.proxies)


def is_loopback(host: str) -> bool:
    """Can only this machine reach it?"""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def networks(texts: list[str]) -> tuple[Network, ...]:
    """Addresses or CIDR ranges. Raises InputError."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise InputError(f"trusted proxy: {error}", "trusted proxy") from None


def tokens(text: str | None) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """A token alone, or on each line the name of a person and a token of theirs. Raises InputError."""
    lines = [line.split() for line in (text or "").splitlines() if line.strip()]
    if len(lines) == 1 and len(lines[0]) == 1:
        return lines[0][0], ()
    if any(len(words) != 2 for words in lines):
        raise InputError("token: give one token, or on each line a name and a token", "token")
    if len({name for name, _ in lines}) < len(lines) or len({token for _, token in lines}) < len(lines):
        raise InputError("token: a name or a token is there twice", "token")
    return None, tuple((name, token) for name, token in lines)


def secret(name: str, file: Path | None, environ: Mapping[str, str], variable: str) -> str | None:
    """A token from a file, else from the environment; None without one."""
    if file is None:
        return environ.get(variable) or None
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: cannot read {file}: {error}", name) from None
    if not text:
        raise InputError(f"{name}: {file} is empty", name)
    return text
