"""The rule: secrets are compared in constant time, and no cookie is believed that this console did not sign."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pgsched.errors import InputError

Role = Literal["none", "read", "write"]
LASTS_S = 12 * 3600
COST = (2**15, 8, 1)
STRONG_LENGTH, STRONG_DISTINCT = 32, 10


@dataclass(frozen=True, slots=True)
class Password:
    """The hash of a password: `scrypt$N$r$p$salt$key`, the last two in base64."""

    n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    @property
    def text(self) -> str:
        """As it was given."""
        return f"scrypt${self.n}${self.r}${self.p}${encoded(self.salt)}${encoded(self.key)}"

    def fits(self, password: str) -> bool:
        """Is it this one?"""
        return hmac.compare_digest(derive(password, self.salt, (self.n, self.r, self.p), len(self.key)), self.key)


def derive(password: str, salt: bytes, cost: tuple[int, int, int], length: int = 32) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=length)


def hashed(password: str) -> str:
    """The text to give as --password-hash."""
    salt = os.urandom(16)
    n, r, p = COST
    return f"scrypt${n}${r}${p}${encoded(salt)}${encoded(derive(password, salt, COST))}"


def parse_hash(text: str) -> Password:
    """Read what `hashed` made. Raises InputError."""
    try:
        kind, n, r, p, salt, key = text.strip().split("$")
        found = Password(int(n), int(r), int(p), decoded(salt), decoded(key))
        if kind != "scrypt" or len(found.key) < 16 or not 2**12 <= found.n <= 2**20:
            raise ValueError
        found.fits("")
    except ValueError:
        raise InputError("password hash: is not one that `pgsched web --hash-password` made", "password hash") from None
    return found


def same(given: str, expected: str) -> bool:
    """Are they equal? Takes the same time wherever they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def is_strong(token: str) -> bool:
    """Is no number of guesses over a network enough to find it? Taken for so: 32 characters, 10 of them different, as a
    random one of 128 bits has."""
    return len(token) >= STRONG_LENGTH and len(set(token)) >= STRONG_DISTINCT


@dataclass(frozen=True, slots=True)
class Session:
    """What the cookie says: which browser it is, and by which secret somebody came in (`by`, see Signer.mark; empty:
    nobody did), until an instant of this machine's clock."""

    id: str
    by: str = ""
    until: float = 0.0


class Signer:
    """Signs and reads cookies. Invariant: the key is random. One made from a token would let whoever has a cookie try
    tokens as fast as his machine can."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or os.urandom(32)

    def seal(self, purpose: str, value: Any) -> str:
        """The value with its signature."""
        text = encoded(json.dumps(value, separators=(",", ":")).encode())
        return f"{text}.{self._mac(purpose, text)}"

    def unseal(self, purpose: str, sealed: str) -> Any:
        """What was sealed; None where it was not by this key and for this purpose."""
        text, _, mac = sealed.partition(".")
        if not same(mac, self._mac(purpose, text)):
            return None
        return json.loads(decoded(text))

    def session(self, cookie: str | None) -> Session | None:
        """The session of a cookie, unless it has ended."""
        found = self.unseal("session", cookie) if cookie else None
        try:
            session = None if found is None else Session(**found)
        except TypeError:  # of another version
            return None
        return session if session is not None and session.until > time.time() else None

    def cookie(self, session: Session) -> str:
        return self.seal("session", asdict(session))

    def mark(self, role: Role, secret: str) -> str:
        """What stands for a secret in the sessions that it began: they end when it changes, or means another role."""
        return self._mac(f"came in to {role} by", secret)[:20]

    def token(self, role: Role) -> str:
        """A token for a console that was given none: of this role, and the same as long as the key is."""
        return self._mac("token", role)

    def csrf(self, session: Session) -> str:
        """The token that this browser's forms carry."""
        return self._mac("csrf", session.id)

    def _mac(self, purpose: str, text: str) -> str:
        return encoded(hmac.digest(self._key, f"{purpose}:{text}".encode(), "sha256"))


def begun(by: str = "") -> Session:
    """A new session."""
    return Session(encoded(os.urandom(18)), by, time.time() + LASTS_S)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
