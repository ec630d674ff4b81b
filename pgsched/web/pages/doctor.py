"""What the doctor says. The rule: a look takes seconds, so no visitor waits for one: they see the last, and another
begins when that is old."""

from __future__ import annotations

import time
from threading import Lock, Thread

from pgsched.db.connection.connect import DatabaseError
from pgsched.db.connection.failures import explain
from pgsched.services.check import Finding, fail
from pgsched.services.doctor import doctor

OLD_S = 10.0


class Diagnosis:
    """The last findings about a database. Thread-safe."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = Lock()
        self._looking = False
        self._found: list[Finding] | None = None
        self._at = 0.0

    def last(self) -> tuple[list[Finding] | None, float]:
        """The last findings (None: the first look goes on) and their age in seconds; begins a new look if they are
        old."""
        with self._lock:
            age_s = time.monotonic() - self._at
            if not self._looking and (self._found is None or age_s > OLD_S):
                self._looking = True
                Thread(target=self._look, name="pgsched-doctor", daemon=True).start()
            return self._found, age_s

    def _look(self) -> None:
        try:
            found = doctor(self._dsn, {})
        except DatabaseError as error:
            found = [fail("connection", explain(error))]
        with self._lock:
            self._found, self._at, self._looking = found, time.monotonic(), False
