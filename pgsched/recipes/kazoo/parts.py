"""What the recipes of a client stand on: connections, sessions, watches and the store."""

from __future__ import annotations

from pgsched.db.enqueuer import Enqueuer
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.sessions.session import Session
from pgsched.recipes.store import Store
from pgsched.recipes.watches import Watches


class Parts:
    """The parts of one client. `ttl_s`: seconds for which its session lives without a renewal."""

    def __init__(self, database: Enqueuer, ttl_s: float) -> None:
        self.database = database
        self.ttl_s = ttl_s
        self.keeper = Keeper(database)
        self.watches = Watches(database)
        self.store = Store(self.keeper)

    def session(self) -> Session:
        """Return the session, a new one where the last one was lost."""
        return self.keeper.session(self.ttl_s)

    def close(self) -> None:
        """End the watches and the session, and give back what it has."""
        self.watches.close()
        self.keeper.close()
