"""Settings of the console: where it listens, which secrets let visitors in, and what they may do.

Invariant: a visitor from another machine must authenticate. Settings that would let every visitor in are refused at the
start.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgsched.errors import InputError
from pgsched.web.security.application_auth import Auth
from pgsched.web.security.prefix import check_prefix, cookie_name
from pgsched.web.security.secrets import Password, Role, equal_secrets, is_strong

SHORTEST_TOKEN = 16
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Settings:
    """How visitors reach the console, and which of them may change things.

    `token`, `password`: a visitor with one of these may change things.
    `named_tokens`: pairs of a person's name and a token; the person may change things.
    `reader_token`: a visitor with this token may only look.
    `producer_tokens`: pairs of a program's name and a token; the program may make runs by the API, and
      read a run by its id and a task by its name.
    `proxy_header`: the header in which a proxy sends the name of the user.
    `proxies`: the addresses of trusted proxies.
    `read_only`: no visitor may change anything.
    `hosts`: the host names that the console answers to; empty: any name, which needs authentication.
    `every_s`: seconds between two looks of a live page.
    `https`: visitors come over https, which a proxy ends.
    `home`: the folder of the key that signs cookies; None: a key of this process alone.
    `root_path`: the path below which the console is reached, such as `/jobs`; empty: the root.
    `signing_key`: signs cookies in place of the key in `home`.
    `stream_s`: seconds after which an event stream ends, and the browser opens the next one.
    `auth`: a function of the application around the console that lets visitors in, in place of all secrets here.
    """

    dsn: str
    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    named_tokens: tuple[tuple[str, str], ...] = ()
    reader_token: str | None = None
    password: Password | None = None
    proxy_header: str | None = None
    proxies: tuple[Network, ...] = ()
    read_only: bool = False
    hosts: tuple[str, ...] = ()
    every_s: float = 2.0
    https: bool = False
    home: Path | None = None
    producer_tokens: tuple[tuple[str, str], ...] = ()
    root_path: str = ""
    signing_key: bytes | None = None
    stream_s: float = 600.0
    auth: Auth | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "root_path", check_prefix("root path", self.root_path))
        named = [("token", token) for _, token in self.named_tokens]
        named += [("producer token", token) for _, token in self.producer_tokens]
        for name, token in (("token", self.token), ("reader token", self.reader_token), *named):
            if token is not None and len(token) < SHORTEST_TOKEN:
                raise InputError(f"{name}: is shorter than {SHORTEST_TOKEN} characters", name)
        if (self.proxy_header is None) != (not self.proxies):
            raise InputError("trusted proxy: --trusted-proxy-header and --trusted-proxy need each other")
        if self.read_only and self.producer_tokens:
            raise InputError("producer token: contradicts --read-only: a producer makes runs", "producer token")
        if self.auth is not None and self.has_secrets:
            raise InputError("auth: the function replaces tokens, passwords and proxies: give either", "auth")
        if not self.authenticates and not is_loopback(self.host):
            raise InputError(
                f"host: {self.host} can be reached from elsewhere: give --token-file, --password-hash or"
                " --trusted-proxy-header with --trusted-proxy, or stay on 127.0.0.1", "host"
            )  # fmt: skip

    @property
    def authenticates(self) -> bool:
        """Check whether visitors must authenticate."""
        return self.auth is not None or self.has_secrets

    @property
    def has_secrets(self) -> bool:
        """Check whether there is a token, a password or a trusted proxy."""
        return self.has_login or bool(self.producer_tokens) or self.proxy_header is not None

    def cookie(self, prefix: str) -> str:
        """Return the name of the session cookie.

        A browser takes a cookie with the prefix `__Host-` over https alone, and from no other host. Such a cookie is
        for all paths; below a path, `__Secure-` is the most that a browser enforces.
        """
        secure = "" if not self.https else "__Secure-" if prefix else "__Host-"
        return cookie_name(f"{secure}pgsched_session", prefix)

    @property
    def has_login(self) -> bool:
        """Check whether there is a token or a password to enter in the login form."""
        return self.has_token or self.password is not None

    @property
    def has_token(self) -> bool:
        """Check whether there is a token, for whichever role."""
        return any((self.token, self.named_tokens, self.reader_token))

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Return the host names that requests may use; empty: any name.

        Without authentication only local names are allowed. A page of another site could otherwise let its own name
        lead to this console, and read its answers.
        """
        return self.hosts or (() if self.authenticates else ("localhost", "127.0.0.1", "[::1]"))

    def by_token(self, given: str) -> tuple[Role, str]:
        """Return the role that a token gives, and the name of its person; all tokens are always compared."""
        found: tuple[Role, str] = ("none", "")
        if self.reader_token and equal_secrets(given, self.reader_token):
            found = ("read", "")
        for name, producer in self.producer_tokens:
            if equal_secrets(given, producer):
                found = ("produce", name)
        for name, token in (("", self.token), *self.named_tokens):
            if token and equal_secrets(given, token):
                found = ("write", name)
        return found

    def is_right_and_strong(self, given: str) -> bool:
        """Check whether this is one of the tokens, and too strong to be guessed.

        A strong token is accepted however many guesses came from its address, because many people may share an address.
        Passwords and short tokens are not. If the right one passed the limit, they could be guessed as fast as the
        console answers.
        """
        return is_strong(given) and self.by_token(given)[0] != "none"

    def is_shared(self, address: str) -> bool:
        """Check whether many people come from this address, as through a trusted proxy."""
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self.proxies)


def is_loopback(host: str) -> bool:
    """Check whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def parse_networks(texts: list[str]) -> tuple[Network, ...]:
    """Parse addresses or CIDR ranges.

    Raises InputError for other texts.
    """
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise InputError(f"trusted proxy: {error}", "trusted proxy") from None


def parse_tokens(text: str | None) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """Parse one token, or lines of a person's name and a token.

    Returns the single token or None, and the pairs of name and token.
    Raises InputError for other texts, and for a name or token that is given twice.
    """
    lines = [line.split() for line in (text or "").splitlines() if line.strip()]
    if len(lines) == 1 and len(lines[0]) == 1:
        return lines[0][0], ()
    if any(len(words) != 2 for words in lines):
        raise InputError("token: give one token, or on each line a name and a token", "token")
    if len({name for name, _ in lines}) < len(lines) or len({token for _, token in lines}) < len(lines):
        raise InputError("token: a name or a token is there twice", "token")
    return None, tuple((name, token) for name, token in lines)


def read_secret(name: str, file: Path | None, environ: Mapping[str, str], variable: str) -> str | None:
    """Read a token from a file, else from an environment variable; return None without either.

    `name`: what the token is called in errors.
    Raises InputError for a file that cannot be read or is empty.
    """
    if file is None:
        return environ.get(variable) or None
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: cannot read {file}: {error}", name) from None
    if not text:
        raise InputError(f"{name}: {file} is empty", name)
    return text
