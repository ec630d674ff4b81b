"""Secrets of the console: password hashes, tokens, sessions, and the signing of cookies.

Invariant: secrets are compared in constant time, and a cookie without the signature of this console counts for nothing.
"""

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

# none: nothing; produce: a program that makes runs by the API; read: looks at everything; write: changes it as well.
Role = Literal["none", "produce", "read", "write"]
SESSION_S = 12 * 3600
SCRYPT_COST = (2**15, 8, 1)
STRONG_LENGTH, STRONG_DISTINCT = 32, 10


@dataclass(frozen=True, slots=True)
class Password:
    """The hash of a password; its text is `scrypt$N$r$p$salt$key`, the last two in base64."""

    n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    @property
    def text(self) -> str:
        """Return the hash as the text that was given."""
        return f"scrypt${self.n}${self.r}${self.p}${encode_base64(self.salt)}${encode_base64(self.key)}"

    def fits(self, password: str) -> bool:
        """Check whether this is the password."""
        return hmac.compare_digest(derive_key(password, self.salt, (self.n, self.r, self.p), len(self.key)), self.key)


def derive_key(password: str, salt: bytes, cost: tuple[int, int, int], length: int = 32) -> bytes:
    """Return the scrypt key of a password; `cost` is N, r and p, `length` the key's bytes."""
    n, r, p = cost
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=length)


def hash_password(password: str) -> str:
    """Hash a password; return the text to give as --password-hash."""
    salt = os.urandom(16)
    n, r, p = SCRYPT_COST
    return f"scrypt${n}${r}${p}${encode_base64(salt)}${encode_base64(derive_key(password, salt, SCRYPT_COST))}"


def parse_hash(text: str) -> Password:
    """Read a text that `hash_password` made.

    Raises InputError for other texts.
    """
    try:
        kind, n, r, p, salt, key = text.strip().split("$")
        found = Password(int(n), int(r), int(p), decode_base64(salt), decode_base64(key))
        if kind != "scrypt" or len(found.key) < 16 or not 2**12 <= found.n <= 2**20:
            raise ValueError
        found.fits("")
    except ValueError:
        raise InputError("password hash: is not one that `pgsched web --hash-password` made", "password hash") from None
    return found


def equal_secrets(given: str, expected: str) -> bool:
    """Check whether two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def is_strong(token: str) -> bool:
    """Check whether no number of guesses over a network would find the token.

    The rule: at least 32 characters, 10 of them different. A random token of 128 bits has as many.
    """
    return len(token) >= STRONG_LENGTH and len(set(token)) >= STRONG_DISTINCT


@dataclass(frozen=True, slots=True)
class Session:
    """What a session cookie says.

    `id`: a random name of the browser.
    `by`: the mark of the secret that logged in (see Signer.mark); empty without a login.
    `until`: when the session expires, in seconds since 1970 by the clock of this machine.
    """

    id: str
    by: str = ""
    until: float = 0.0


class Signer:
    """Signs and reads cookies.

    Invariant: the key is random. If it were made from a token, the owner of any cookie could try tokens against its
    signature, as fast as their machine can.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or os.urandom(32)

    def seal(self, purpose: str, value: Any) -> str:
        """Return the value as text with its signature; it is valid for one `purpose`."""
        text = encode_base64(json.dumps(value, separators=(",", ":")).encode())
        return f"{text}.{self._mac(purpose, text)}"

    def unseal(self, purpose: str, sealed: str) -> Any:
        """Return the sealed value; None if it was sealed with another key or for another purpose."""
        text, _, mac = sealed.partition(".")
        if not equal_secrets(mac, self._mac(purpose, text)):
            return None
        return json.loads(decode_base64(text))

    def session(self, cookie: str | None) -> Session | None:
        """Return the session in a cookie; None if the cookie is invalid or the session has expired."""
        found = self.unseal("session", cookie) if cookie else None
        try:
            session = None if found is None else Session(**found)
        except TypeError:  # a cookie of another version
            return None
        return session if session is not None and session.until > time.time() else None

    def cookie(self, session: Session) -> str:
        """Return the value of the cookie for a session."""
        return self.seal("session", asdict(session))

    def mark(self, role: Role, secret: str) -> str:
        """Return the mark that stands for a secret, with its role, in the sessions that it began.

        These sessions end when the secret changes or gives another role.
        """
        return self._mac(f"came in to {role} by", secret)[:20]

    def token(self, role: Role) -> str:
        """Return a token with this role, for a console that was given none; it stays the same as long as the key."""
        return self._mac("token", role)

    def csrf(self, session: Session) -> str:
        """Return the CSRF token that the forms of this browser carry."""
        return self._mac("csrf", session.id)

    def _mac(self, purpose: str, text: str) -> str:
        return encode_base64(hmac.digest(self._key, f"{purpose}:{text}".encode(), "sha256"))


def new_session(by: str = "") -> Session:
    """Return a new session; `by` is the mark of the secret that logged in."""
    return Session(encode_base64(os.urandom(18)), by, time.time() + SESSION_S)


def encode_base64(data: bytes) -> str:
    """Return bytes as URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode_base64(text: str) -> bytes:
    """Return the bytes of URL-safe base64 without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
