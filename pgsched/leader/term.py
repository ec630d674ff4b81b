"""One term of a leader: the state that all of its duties share.

Invariant: each transaction of a duty begins in `leading`, which locks the term's row and raises NotLeading when a newer
term exists.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import leadership
from pgsched.leader.isolation.duty_guard import DutyGuard
from pgsched.leader.isolation.set_aside import SetAside
from pgsched.leader.metrics import LeaderMeter


class Term:
    """The term with this number, on one connection.

    `locked`: the session lock keeps other candidates away.
    `meter`: where the duties count their work; None without metrics.
    `set_aside`: the rows that the duties skip for a while.
    `lull_until`: monotonic instant before which only urgent work is done, to leave the machine to the workers.
    """

    def __init__(
        self,
        conn: Connection[Any],
        number: int,
        settings: LeaderSettings,
        *,
        locked: bool = True,
        meter: LeaderMeter | None = None,
    ) -> None:
        self.conn = conn
        self.number = number
        self.settings = settings
        self.locked = locked
        self.meter = meter
        self.set_aside = SetAside()
        self.guard = DutyGuard(conn, self.leading, self.set_aside)
        self.lull_until = -math.inf

    @property
    def lull(self) -> bool:
        """Whether there is a lull now."""
        return time.monotonic() < self.lull_until

    @property
    def exclusive(self) -> bool:
        """Whether other candidates wait for a lock of this session, and so need not watch the age of the term's row."""
        return self.locked and not is_shared(self.conn)

    @contextmanager
    def leading(self) -> Iterator[Connection[Any]]:
        """Begin a transaction that first proves leadership. Raises NotLeading where there is a newer term."""
        with self.conn.transaction():
            leadership.fence(self.conn, self.number)
            yield self.conn
            if not self.exclusive:  # a long transaction must not look like the end of the term
                leadership.mark_term_alive(self.conn, self.number)

    def resign(self) -> None:
        """Close the term."""
        with self.leading() as conn:
            leadership.mark_term_alive(conn, self.number, resign=True)
