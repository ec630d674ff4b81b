"""Registration: writes a worker's row, its app's tasks and the jobs that its code declares.

Invariant: a worker is registered with everything that its code declares, and logs the result for each job.
"""

from __future__ import annotations

from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.failures import explain_error
from pgsched.db.queries.jobs import registration as rows
from pgsched.db.queries.jobs.declarations import FOREIGN, LOCKED, declare_in_turn
from pgsched.db.queries.runs import tasks, workers
from pgsched.db.queries.runs.workers import Registration
from pgsched.errors import LockTimeout, PgschedError

logger = log.get("process")
PATIENCE_S = 0.05  # how long a heartbeat may wait for a lock
OTHERS_APP = (
    "tasks not registered: another role's worker has registered an app of this name; give this one another name, or"
    " delete the rows of that app in pgsched.tasks"
)
LOCK_NOT_AVAILABLE = "55P03"
LIMITS_LOCKED = "limits of tasks stay as they are: another session has locked one; start a worker again later"
LIMITS_WAIT_S = 1.0


def register(dsn: str, registration: Registration) -> tuple[int, bool]:
    """Write the worker's row and the jobs of its app; return the worker's id, and whether all jobs are declared.

    A job whose row is locked is not declared. Raises PgschedError.
    """
    try:
        with connect(dsn, purpose="worker") as conn:
            register_tasks(conn, registration)
            worker_id, done = rows.register(conn, registration)
    except DatabaseError as error:
        raise explain_error(error) from error
    log_declarations(registration, done)
    return worker_id, not locked_jobs(done)


def register_tasks(conn: Connection[Any], registration: Registration, *, again: bool = False) -> None:
    """Register the app's tasks, releases and limits, before a job of them is declared. Raises DatabaseError.

    `again`: the worker registers once more, so limits that are there stay as they are.
    """
    if registration.app is None or registration.releases is None:
        return
    if owner := tasks.register(conn, registration.app, registration.releases):
        logger.warning(OTHERS_APP, app=registration.app, owner=owner)
    elif done := declare_limits(conn, registration.app, update=not again):
        logger.info("limits of tasks declared", app=registration.app, limits=done)


def declare_limits(conn: Connection[Any], app: str, *, update: bool) -> dict[str, str]:
    """Declare the limits of the app's tasks; return what was done with each. A limit that is locked stays as it is."""
    try:
        with conn.transaction():
            conn.execute("SELECT set_config('lock_timeout', %s, true)", [f"{1000 * LIMITS_WAIT_S:.0f}ms"])
            return tasks.declare_limits(conn, app, update=update)
    except (LockTimeout, DatabaseError) as error:
        if not isinstance(error, LockTimeout) and error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        logger.warning(LIMITS_LOCKED, app=app)
        return {}


def locked_jobs(done: dict[str, str]) -> dict[str, str]:
    """Return the jobs whose rows were locked."""
    return {name: what for name, what in done.items() if what.startswith(LOCKED)}


def declare_again(conn: Connection[Any], registration: Registration, *, update: bool = True) -> bool:
    """Declare jobs that could not be declared before; return whether all are declared now.

    Without `update`, only missing jobs are put back. Raises DatabaseError.
    """
    if registration.app is None or registration.jobs is None:
        return True
    try:
        with conn.transaction():
            conn.execute("SELECT set_config('lock_timeout', %s, true)", [f"{1000 * PATIENCE_S:.0f}ms"])
            if not rows.try_declare_lock(conn):
                return False
            done = declare_in_turn(
                conn, registration.jobs, registration.app, remove=False, update=update, wait_s=PATIENCE_S
            )
    except LockTimeout:
        return False
    except DatabaseError as error:
        if error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        return False
    except PgschedError as error:
        if isinstance(error.__cause__, DatabaseError):
            raise error.__cause__ from None
        logger.error("the jobs that the code declares cannot be declared", app=registration.app, error=str(error))
        return True
    if not locked_jobs(done):
        logger.info("jobs declared", app=registration.app, jobs=done)
    return not locked_jobs(done)


def register_again(conn: Connection[Any], registration: Registration) -> tuple[int, bool]:
    """Register a worker that the database no longer knows, or counts as stopped; return as `register` does.

    Of its jobs only missing ones are put back. Raises DatabaseError.
    """
    register_tasks(conn, registration, again=True)
    try:
        worker_id, done = rows.register(conn, registration, again=True)
    except PgschedError as error:
        if isinstance(error.__cause__, DatabaseError):
            raise error.__cause__ from None  # the heartbeat decides whether a retry can help
        logger.error("the jobs that the code declares cannot be put back", app=registration.app, error=str(error))
        return workers.insert_worker(conn, registration), True
    if back := [name for name, what in done.items() if what == "created"]:
        logger.warning("jobs put back that were removed while this worker was away", app=registration.app, jobs=back)
    return worker_id, not locked_jobs(done)


def log_declarations(registration: Registration, done: dict[str, str]) -> None:
    """Log what was declared, and why the other jobs were not."""
    if done:
        logger.info("jobs declared", app=registration.app, jobs=done)
    if locked := locked_jobs(done):
        logger.warning("jobs are as they were: another session has locked them; they are declared later", jobs=locked)
    if taken := {name: what for name, what in done.items() if what.startswith(f"{FOREIGN}:")}:
        logger.error("jobs not made: another owner has taken their names, and would own what they run: delete them",
                     app=registration.app, jobs=taken)  # fmt: skip
    if foreign := [name for name, what in done.items() if what == FOREIGN]:
        logger.warning("jobs not made: their names belong to jobs that this app does not own; rename or delete one",
                       app=registration.app, jobs=foreign)  # fmt: skip
    left = [name for name, what in done.items() if what == "left"]
    if left:
        logger.info("jobs left: other processes of the app are there; the leader removes what none declares", jobs=left)
    elif left:
        logger.warning("jobs are declared no more: delete them, or name the App to have them removed", jobs=left)
