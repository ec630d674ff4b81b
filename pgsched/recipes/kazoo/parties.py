"""Kazoo's Party and ShallowParty, on the parties of pgsched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pgsched.errors import LeaseLost
from pgsched.recipes.kazoo.paths import identifier_text, name_of
from pgsched.recipes.party import Party as SharedParty

if TYPE_CHECKING:
    from pgsched.recipes.kazoo.client import KazooClient


class Party:
    """A party: those who have joined, each with an identifier that the others read.

    `identifier`: of this member; it need not be the only one of that name.
    """

    def __init__(self, client: KazooClient, path: str, identifier: Any = None) -> None:
        self.client = client
        self.path = path
        self._name = name_of(path)
        self._identifier = identifier_text(identifier)
        self._member: SharedParty | None = None
        self._changing = threading.Lock()

    @property
    def participating(self) -> bool:
        """Whether the others see it: it has joined, and its session lives."""
        return self._member is not None and not self._member.lost

    def join(self) -> None:
        """Join; do nothing where it has joined. After the session was lost, it joins again."""
        with self._changing:
            if not self.participating:
                self._member = self.client.retry(self.client.perform, lambda: self._shared().join(self._identifier))

    def leave(self) -> bool:
        """Leave; return False where the others did not see it any more."""
        with self._changing:
            member, self._member = self._member, None
            if member is None:
                return False
            try:
                self.client.perform(member.leave)
            except LeaseLost:
                return False
            return True

    def __iter__(self) -> Iterator[str]:
        """Return the identifiers of the members; "" for one without."""
        return iter(self._identifiers())

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._identifiers())

    def _identifiers(self) -> list[str]:
        members = self.client.retry(self.client.perform, lambda: self._shared().members())
        return [identifier_text(member.data) for member in members]

    def _shared(self) -> SharedParty:
        parts = self.client.parts
        return SharedParty(parts.keeper, parts.store, self._name, ttl=parts.ttl_s)


class ShallowParty(Party):
    """The same as a Party: to read the members' data costs nothing more here."""
