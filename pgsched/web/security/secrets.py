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


@dataclass(frozen=True, slots=True)
class Password:
    """The hash of a password: `scrypt$N$r$p$salt$key`, the last two in base64."""

    n: int
    r: int
    p: int
    salt: bytes
    key: bytes

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


@dataclass(frozen=True, slots=True)
class Session:
    """What the cookie says: which browser it is, and what it may do until an instant of this machine's clock."""

    id: str
    role: Role = "none"
    user: str = ""
    until: float = 0.0


class Signer:
    """Signs and reads cookies. With a secret of the operator's the key outlives this process."""

    def __init__(self, secret: str | None) -> None:
        self._key = os.urandom(32) if secret is None else hashlib.sha256(b"pgsched web " + secret.encode()).digest()

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
        session = None if found is None else Session(**found)
        return session if session is not None and session.until > time.time() else None

    def cookie(self, session: Session) -> str:
        return self.seal("session", asdict(session))

    def csrf(self, session: Session) -> str:
        """The token that this browser's forms carry."""
        return self._mac("csrf", session.id)

    def _mac(self, purpose: str, text: str) -> str:
        return encoded(hmac.digest(self._key, f"{purpose}:{text}".encode(), "sha256"))


def begun(role: Role = "none", user: str = "") -> Session:
    """A new session."""
    return Session(encoded(os.urandom(18)), role, user, time.time() + LASTS_S)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
