"""The rule: a worker is registered with what its code declares, and says what became of that."""

from __future__ import annotations

from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.failures import explain
from pgsched.db.queries.jobs import registration as rows
from pgsched.db.queries.runs import workers
from pgsched.db.queries.runs.workers import Registration
from pgsched.errors import PgschedError

logger = log.get("process")


def register(dsn: str, registration: Registration) -> int:
    """Write the worker's row and the jobs of its app; returns the worker's id. Raises PgschedError."""
    try:
        with connect(dsn, purpose="worker") as conn:
            worker_id, done = rows.register(conn, registration)
    except DatabaseError as error:
        raise explain(error) from error
    tell(registration, done)
    return worker_id


def register_again(conn: Connection[Any], registration: Registration) -> int:
    """Of a worker that the database does not know any more, or has given up: as `register`, but that of its jobs it
    only puts back those that are gone. Raises DatabaseError."""
    try:
        worker_id, done = rows.register(conn, registration, again=True)
    except PgschedError as error:
        if isinstance(error.__cause__, DatabaseError):
            raise error.__cause__ from None  # it passes, or not: whoever beats knows what to do
        logger.error("the jobs that the code declares cannot be put back", app=registration.app, error=str(error))
        return workers.start(conn, registration)
    if back := [name for name, what in done.items() if what == "created"]:
        logger.warning("jobs put back that were removed while this worker was away", app=registration.app, jobs=back)
    return worker_id


def tell(registration: Registration, done: dict[str, str]) -> None:
    """Log what was done. What is left is not declared by this process."""
    if done:
        logger.info("jobs declared", app=registration.app, jobs=done)
    left = [name for name, what in done.items() if what == "left"]
    if left and registration.removes:
        logger.info("jobs left: other processes of the app are there; the leader removes what none declares", jobs=left)
    elif left:
        logger.warning("jobs are declared no more: delete them, or name the App to have them removed", jobs=left)
