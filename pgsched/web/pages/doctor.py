"""What the doctor says. The rule: a look takes seconds, so no visitor waits for one: they see the last, and another
begins when that is old."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Lock, Thread

from pgsched.db.connection.connect import DatabaseError
from pgsched.db.connection.failures import explain
from pgsched.services.check import Finding, fail
from pgsched.services.doctor import doctor

OLD_S = 10.0
# The checks whose texts have the host, the database, the user or a folder in them.
WHERE = ("dsn", "connection", "sslmode", "grants", "embedded", "disk")


def hidden(finding: Finding) -> Finding:
    """The finding without host, database and user."""
    said = {"ok": "it is well", "warn": "there is something to know", "fail": "it fails"}[finding.level]
    text = f"{said}; what, is shown to who may change things"
    return replace(finding, text=text) if finding.name in WHERE else finding


class Diagnosis:
    """The last findings about a database. Thread-safe."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = Lock()
        self._looking = False
        self._found: list[Finding] | None = None
        self._at = 0.0

    def last(self, *, all_of_it: bool) -> tuple[list[Finding] | None, float]:
        """The last findings (None: the first look goes on) and their age in seconds; begins a new look if they are
        old. `all_of_it`: for somebody who may also know where the database is."""
        with self._lock:
            age_s = time.monotonic() - self._at
            if not self._looking and (self._found is None or age_s > OLD_S):
                self._looking = True
                Thread(target=self._look, name="pgsched-doctor", daemon=True).start()
            found = self._found if all_of_it or self._found is None else [hidden(one) for one in self._found]
            return found, age_s

    def _look(self) -> None:
        try:
            found = doctor(self._dsn, {})
        except DatabaseError as error:
            found = [fail("connection", explain(error))]
        with self._lock:
            self._found, self._at, self._looking = found, time.monotonic(), False
