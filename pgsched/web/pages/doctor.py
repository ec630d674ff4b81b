"""The doctor's findings for the console, refreshed in the background.

Invariant: no visitor waits for a check, because a check takes seconds. Visitors see the findings of the last check. A
new check begins when the last one is old. A check that fails, for whatever reason, becomes a finding.
"""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Lock, Thread

from pgsched import log
from pgsched.db.connection.connect import DatabaseError
from pgsched.db.connection.failures import explain_error
from pgsched.errors import PgschedError
from pgsched.services.check import Finding, fail
from pgsched.services.doctor import doctor

logger = log.get("web")
OLD_S = 10.0
# Checks whose texts may name the host, the database, the user or a folder.
SUMMARIES = {"ok": "nothing is wrong", "warn": "a warning", "fail": "a failure"}
LOCATING_CHECKS = ("dsn", "connection", "sslmode", "grants", "embedded", "disk")


def redact_finding(finding: Finding) -> Finding:
    """Return the finding, with another text if its own may name the host, the database, the user or a folder."""
    text = f"{SUMMARIES[finding.level]}; only visitors who may change things see the details"
    return replace(finding, text=text) if finding.name in LOCATING_CHECKS else finding


class Diagnosis:
    """The last findings about a database. Thread-safe."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._lock = Lock()
        self._checking = False
        self._findings: list[Finding] | None = None
        self._checked_at = 0.0

    def last(self, *, all_of_it: bool) -> tuple[list[Finding] | None, float]:
        """Return the last findings and their age in seconds; begin a new check if they are old.

        The findings are None until the first check has ended.
        `all_of_it`: also return texts that say where the database is.
        """
        with self._lock:
            age_s = time.monotonic() - self._checked_at
            if not self._checking and (self._findings is None or age_s > OLD_S):
                Thread(target=self._look, name="pgsched-doctor", daemon=True).start()
                self._checking = True  # after the start, which may fail
            found = (
                self._findings
                if all_of_it or self._findings is None
                else [redact_finding(one) for one in self._findings]
            )
            return found, age_s

    def _look(self) -> None:
        try:
            found = doctor(self._dsn, {})
        except DatabaseError as error:
            found = [fail("connection", explain_error(error))]
        except PgschedError as error:
            found = [fail("connection", error)]
        except Exception as error:
            logger.error("the check of the system failed", exc_info=True)
            bug = f"{type(error).__name__}: this is a bug in pgsched; the console's log shows where"
            found = [fail("doctor", PgschedError(bug))]
        with self._lock:
            self._findings, self._checked_at, self._checking = found, time.monotonic(), False
