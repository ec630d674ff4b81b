"""The handles of jobs: `app.jobs["nightly"]` pauses, runs, changes and explains a job.

Invariant: a handle holds no connection and no state; it is the job's name. Each method asks the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from pgsched import log
from pgsched.app.base import AppBase
from pgsched.app.run_handle import RunHandle
from pgsched.client.call_arguments import job_arguments
from pgsched.core.explain import Explanation
from pgsched.core.planning.backfill import Choice
from pgsched.core.schedule.preview import PreviewSlot, preview_job
from pgsched.core.text import did_you_mean
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.jobs.backfills import Request
from pgsched.errors import CHANGED, InputError
from pgsched.services.jobs import backfilling, job_changes
from pgsched.services.jobs.explain import explain_slot

if TYPE_CHECKING:
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn

Conn = Connection[Any]
logger = log.get("jobs")
Overlap = Literal["allow", "skip", "buffer_one", "buffer_all", "replace", "terminate"]


class BackfillOptions(TypedDict, total=False):
    """Options of a backfill.

    `mode`: "missing": slots without a run that started (the default); "failed": slots whose run started and did not
    succeed; "unsuccessful": both; "all".
    `max_active`: how many of its runs may be open at once (1).
    `reverse`: the newest slot first.
    `priority`: of its runs, 0 to 9 (9).
    `connection`: act in your own transaction.
    """

    mode: Literal["missing", "failed", "unsuccessful", "all"]
    max_active: int
    reverse: bool
    priority: int
    connection: Any


class Jobs:
    """The jobs of the database: `app.jobs["nightly"]` is the handle of one."""

    def __init__(self, app: AppBase) -> None:
        self._app = app

    def __getitem__(self, name: str) -> JobHandle:
        """Return the handle of a job. Nothing is asked until it is used."""
        if not isinstance(name, str) or not name:
            raise InputError(f"job: expected a name, got {name!r}", "job")
        return JobHandle(self._app, name)


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job of the database, by its name.

    Each method has a form with `_async` for asyncio. `connection`: ask or act in your own transaction, on a psycopg
    connection, or on a SQLAlchemy connection or session of any PostgreSQL driver. Methods raise NotFound where there is
    no job of that name, InputError for wrong values, and DatabaseUnreachable.
    """

    _app: AppBase
    name: str

    # ---- read

    def info(self, *, connection: SyncConn | None = None) -> Mapping[str, Any]:
        """Return the columns of the job, and `next_allowed_at`: its next slot that falls on no excluded date."""
        return self._app.database.call(connection, lambda conn: jobs.show_job(conn, self.name))

    async def info_async(self, *, connection: AsyncConn | None = None) -> Mapping[str, Any]:
        """Return the columns of the job."""
        return await self._app.database.call_async(connection, lambda conn: jobs.show_job(conn, self.name))

    def preview(self, n: int = 5, *, connection: SyncConn | None = None) -> list[PreviewSlot]:
        """Return the next `n` slots of the job."""
        return self._app.database.call(connection, lambda conn: next_slots(conn, self.name, n))

    async def preview_async(self, n: int = 5, *, connection: AsyncConn | None = None) -> list[PreviewSlot]:
        """Return the next `n` slots of the job."""
        return await self._app.database.call_async(connection, lambda conn: next_slots(conn, self.name, n))

    def explain(self, at: datetime | str | None = None, *, connection: SyncConn | None = None) -> Explanation:
        """Explain what happened to a slot of the job, and why.

        `at`: an instant at or near the slot; a text without an offset is in the job's zone. None: the latest slot.
        """
        return self._app.database.call(connection, lambda conn: explain_slot(conn, self.name, instant_text("at", at)))

    async def explain_async(
        self, at: datetime | str | None = None, *, connection: AsyncConn | None = None
    ) -> Explanation:
        """Explain what happened to a slot of the job, and why."""
        return await self._app.database.call_async(
            connection, lambda conn: explain_slot(conn, self.name, instant_text("at", at))
        )

    # ---- change

    def pause(self, reason: str | None = None, *, connection: SyncConn | None = None) -> None:
        """Stop the job's schedule; runs that exist go on."""
        self._app.database.call(connection, lambda conn: pause_and_log(conn, self.name, reason), maybe=CHANGED)

    async def pause_async(self, reason: str | None = None, *, connection: AsyncConn | None = None) -> None:
        """Stop the job's schedule; runs that exist go on."""
        await self._app.database.call_async(
            connection, lambda conn: pause_and_log(conn, self.name, reason), maybe=CHANGED
        )

    def resume(self, from_: Literal["now", "pause"] = "now", *, connection: SyncConn | None = None) -> None:
        """Start the job's schedule again.

        `from_`: "now": the slots of the pause are skipped. "pause": the job's policy `catch_up` decides about them.
        """
        self._app.database.call(connection, lambda conn: resume_and_log(conn, self.name, from_), maybe=CHANGED)

    async def resume_async(
        self, from_: Literal["now", "pause"] = "now", *, connection: AsyncConn | None = None
    ) -> None:
        """Start the job's schedule again."""
        await self._app.database.call_async(
            connection, lambda conn: resume_and_log(conn, self.name, from_), maybe=CHANGED
        )

    def trigger(
        self, args: Any = None, *, overlap: Overlap = "allow", connection: SyncConn | None = None
    ) -> RunHandle[Any]:
        """Run the job now, beside its schedule; return the run.

        `args`: instead of the job's own arguments, as `app.enqueue` takes them. `overlap`: the policy for the job's
        unfinished runs. Raises TaskError where this App has the task and the arguments do not fit it.
        """
        run_id = self._app.database.call(
            connection, lambda conn: trigger_job(self._app, conn, self.name, args, overlap), maybe=CHANGED
        )
        return RunHandle(run_id, self._app)

    async def trigger_async(
        self, args: Any = None, *, overlap: Overlap = "allow", connection: AsyncConn | None = None
    ) -> RunHandle[Any]:
        """Run the job now, beside its schedule; return the run."""
        run_id = await self._app.database.call_async(
            connection, lambda conn: trigger_job(self._app, conn, self.name, args, overlap), maybe=CHANGED
        )
        return RunHandle(run_id, self._app)

    def update(self, *, connection: SyncConn | None = None, **columns: Any) -> None:
        """Change columns of the job; None restores a column's default.

        Durations are timedeltas or texts such as "90 seconds". The slots of a new schedule begin now. `args` are as
        `app.enqueue` takes them; see `trigger`.
        """
        self._app.database.call(connection, lambda conn: update_job(self._app, conn, self.name, columns), maybe=CHANGED)

    async def update_async(self, *, connection: AsyncConn | None = None, **columns: Any) -> None:
        """Change columns of the job; None restores a column's default."""
        await self._app.database.call_async(
            connection, lambda conn: update_job(self._app, conn, self.name, columns), maybe=CHANGED
        )

    def delete(self, *, connection: SyncConn | None = None) -> None:
        """Delete the job and cancel its unstarted runs; its history stays."""
        self._app.database.call(connection, lambda conn: job_changes.delete(conn, self.name), maybe=CHANGED)

    async def delete_async(self, *, connection: AsyncConn | None = None) -> None:
        """Delete the job and cancel its unstarted runs; its history stays."""
        await self._app.database.call_async(connection, lambda conn: job_changes.delete(conn, self.name), maybe=CHANGED)

    @overload
    def backfill(
        self, start: datetime | str, end: datetime | str, *, dry_run: Literal[True], **options: Unpack[BackfillOptions]
    ) -> list[Choice]: ...
    @overload
    def backfill(
        self,
        start: datetime | str,
        end: datetime | str,
        *,
        dry_run: Literal[False] = False,
        **options: Unpack[BackfillOptions],
    ) -> int: ...
    def backfill(
        self,
        start: datetime | str,
        end: datetime | str,
        *,
        dry_run: bool = False,
        **options: Unpack[BackfillOptions],
    ) -> int | list[Choice]:
        """Run slots of the past in [start, end); return the backfill's id.

        `start`, `end`: instants; a text without an offset is in the job's zone. `options`: see `BackfillOptions`.
        `dry_run`: return what would happen to each slot, and write nothing.
        """
        asked, connection = request_of(start, end, options), options.get("connection")
        return self._app.database.call(
            connection, lambda conn: backfill(conn, self.name, asked, dry_run), maybe=None if dry_run else CHANGED
        )

    @overload
    async def backfill_async(
        self, start: datetime | str, end: datetime | str, *, dry_run: Literal[True], **options: Unpack[BackfillOptions]
    ) -> list[Choice]: ...
    @overload
    async def backfill_async(
        self,
        start: datetime | str,
        end: datetime | str,
        *,
        dry_run: Literal[False] = False,
        **options: Unpack[BackfillOptions],
    ) -> int: ...
    async def backfill_async(
        self,
        start: datetime | str,
        end: datetime | str,
        *,
        dry_run: bool = False,
        **options: Unpack[BackfillOptions],
    ) -> int | list[Choice]:
        """Run slots of the past like `backfill`, without blocking the event loop."""
        asked, connection = request_of(start, end, options), options.get("connection")
        return await self._app.database.call_async(
            connection, lambda conn: backfill(conn, self.name, asked, dry_run), maybe=None if dry_run else CHANGED
        )


def next_slots(conn: Conn, name: str, n: int) -> list[PreviewSlot]:
    """Return the next slots of a job."""
    return list(preview_job(jobs.show_planned_job(conn, name), n).fires)


def trigger_job(app: AppBase, conn: Conn, name: str, args: Any, overlap: str) -> int:
    """Run a job now; return the run's id. None: with the job's own arguments."""
    if args is not None:
        args = job_arguments(app, conn, jobs.show_job(conn, name), args)
    return jobs.trigger(conn, name, args, overlap)


def update_job(app: AppBase, conn: Conn, name: str, columns: dict[str, Any]) -> None:
    """Change columns of a job. Arguments are those of the task that the job has afterwards."""
    if columns.get("args") is not None:
        given = {column: columns[column] for column in ("kind", "task") if columns.get(column) is not None}
        columns = {**columns, "args": job_arguments(app, conn, {**jobs.show_job(conn, name), **given}, columns["args"])}
    job_changes.update(conn, name, columns)


def backfill(conn: Conn, name: str, asked: Request, dry_run: bool) -> int | list[Choice]:
    """Start a backfill and return its id, or return the decision for each slot."""
    if dry_run:
        return backfilling.preview(conn, name, asked).choices
    return int(backfilling.start(conn, name, asked)["id"])


def request_of(start: datetime | str, end: datetime | str, options: BackfillOptions) -> Request:
    """Return the request for a backfill. Raises InputError for an unknown option and a datetime without a zone."""
    known = (*BackfillOptions.__annotations__, "dry_run")
    for name in options:
        if name not in known:
            raise InputError(f"{name}: no such option; known are {', '.join(known)}{did_you_mean(name, known)}", name)
    begins, ends = instant_text("start", start), instant_text("end", end)
    if begins is None or ends is None:
        raise InputError("start, end: expected a datetime or a text, got None", "start")
    return Request(
        begins,
        ends,
        options.get("mode", "missing"),
        options.get("max_active", 1),
        options.get("reverse", False),
        options.get("priority", 9),
    )


def instant_text(name: str, value: datetime | str | None) -> str | None:
    """Return an instant as ISO text; a text stays as it is. Raises InputError for a datetime without a zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InputError(f"{name}: {value} has no time zone", name)
        return value.isoformat()
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name}: expected a datetime or a text, got {type(value).__name__}", name)
    return value


def pause_and_log(conn: Conn, name: str, reason: str | None) -> None:
    """Pause a job; log what a person should read about it, such as a file that declares the column."""
    log_notes(job_changes.pause(conn, name, reason))


def resume_and_log(conn: Conn, name: str, since: str) -> None:
    """Resume a job; log what a person should read about it."""
    log_notes(job_changes.resume(conn, name, since))


def log_notes(job: Mapping[str, Any]) -> None:
    """Log the notes about a change of a job."""
    for note in job["notes"]:
        logger.warning(note)
