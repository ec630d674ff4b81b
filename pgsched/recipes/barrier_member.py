"""A member of a double barrier, from its entry to the end of the round: what it knows, and what changes mean for it.

Invariant: after a change it goes on, waits, or asks the database; it never takes a change of an earlier round for one
of its own.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from pgsched.db.queries.recipes import store
from pgsched.db.queries.recipes.store import Standing
from pgsched.errors import LeaseLost
from pgsched.recipes.bound import BoundKey
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.watch import Change, Watch


class BarrierMember:
    """A member. `standing`: the round in which it is, and whether that is open. `key`: what it binds to its session.

    `note`: a JSON text, the value of the key.
    """

    def __init__(self, keeper: Keeper, name: str, size: int, note: str) -> None:
        self._keeper = keeper
        self._name = name
        self._size = size
        self._note = note
        self._state_key = f"{name}/barrier"
        self._token = uuid4()
        self.key = f"{self._state_key}/{self._token.hex}"
        self.standing = Standing(None, False)
        self._place: BoundKey | None = None
        self._may_come_late = False  # the answer to a call was lost

    # ---- what it asks the database

    def enter(self, conn: Any, session: UUID) -> Standing:
        """Enter, or ask how it stands."""
        params = {"name": self._name, "token": self._token, "size": self._size, "session": session, "note": self._note}
        return store.enter_barrier(conn, params)

    def withdraw(self, conn: Any) -> bool:
        """Give up waiting; return False where it has opened with this member inside."""
        withdrawn = store.withdraw_from_barrier(conn, self._name, self._token)
        if withdrawn:
            self.drop(give_back=self._may_come_late)
        return withdrawn

    def leave(self, conn: Any) -> bool:
        """Leave; return whether all members of the round have left."""
        is_over = store.leave_barrier(conn, self._name, self._token, self.standing.round or 0)
        self.drop(give_back=self._may_come_late)
        return is_over

    # ---- its session

    def note(self, place: BoundKey, standing: Standing) -> None:
        """Take the database's answer to `enter`."""
        self.drop()  # that of a session that was lost
        self._place, self.standing = place, standing
        self._may_come_late = self._may_come_late or place.open_calls > 0
        if standing.round is None:
            self.drop()

    def drop(self, *, give_back: bool = False) -> None:
        """Keep no session alive for it. `give_back`: the keeper's thread deletes its key."""
        place, self._place = self._place, None
        if place is not None:
            self._keeper.remove(place, give_back=give_back)

    def is_lost(self) -> bool:
        """Whether it was inside, and its session was not renewed in time."""
        return self._place is not None and self._place.lost is not None

    def lost_error(self) -> LeaseLost | None:
        """Return the error that says so, if it is lost."""
        if self._place is None or self._place.lost is None:
            return None
        return LeaseLost(
            f'barrier "{self._name}": this member is gone: {self._place.lost}; the others did not wait for it'
        )

    # ---- what changes mean

    def still_waits(self, watch: Watch, change: Change | None) -> bool:
        """Return whether to wait for another change; if not, it is open, or the database is to be asked again."""
        if change is None or change.kind == "skipped":
            watch.check_open()  # an App that was closed opens no other session for it
            return False
        if change.key == self.key:
            return change.kind != "deleted"
        if change.key != self._state_key:
            return True
        state, inside = state_of(change), self.standing.round
        if state is None or inside is None:
            return state is not None and state.open
        if state.round == inside and state.open:
            self.standing = state
        return (state.round or 0) <= inside and not self.standing.open

    def ends_round(self, watch: Watch, change: Change | None) -> bool | None:
        """Return whether this change ends its round; None: ask the database."""
        if change is None or change.kind == "skipped":
            watch.check_open()
            return None
        state = state_of(change)
        return change.key == self._state_key and (state is None or state.round != self.standing.round)


def state_of(change: Change) -> Standing | None:
    """Return the state of a barrier that was written; None where it was deleted, or is none."""
    match change.value:
        case {"round": int(number), "open": bool(is_open)}:
            return Standing(number, is_open)
    return None
