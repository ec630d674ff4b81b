"""The executor of kind `sql`: each run is one transaction.

Invariant: the transaction commits as a whole or leaves nothing.

`task` is one or several statements. `args` is an object of named parameters (`%(name)s`, and `%%` for a literal percent
sign). Without parameters the text is sent unchanged.

A run knows itself: the settings `pgsched.run_id`, `attempt`, `job`, `scheduled_at` and `interval_start` hold for its
transaction, and the parameters `%(pgsched_run_id)s` and so on have the same values. A text that names one of these has
parameters, also without `args`.

The key `dsn` of `args` is not a parameter. It names another database, which the worker knows by that name. On that
database the run has the rights of the worker's login there.

Notices become the run's log. On the scheduler's own database the same transaction records the run's success:

- The statements of a former owner (a zombie) roll back.
- The statements of a run that succeeded have taken effect exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pgsched.app.signals import format_error
from pgsched.core.model import Claim, Outcome, Result, Unreadable
from pgsched.db.sql_jobs import SqlJob, SqlText, TransactionEnded, other_database_dsn
from pgsched.execute.base import AttemptCancelled, get_kill_after_s
from pgsched.execute.outcomes import refusal_outcome
from pgsched.execute.output.record import Journal
from pgsched.telemetry import tracing

RESERVED = "pgsched_"  # parameters that begin with this are set here
IN_TRANSACTION = "25001"  # "cannot run inside a transaction block"


class SqlExecutor:
    """The executor of SQL statements, on the scheduler's database or a named one; each run has its own connection."""

    abandoned = 0

    def __init__(
        self, dsn: str, journal: Journal | None = None, *, fenced: bool = False, named: Mapping[str, str] | None = None
    ) -> None:
        """Prepare the executor. Raises InputError where a connection string in `named` is wrong.

        `fenced`: `dsn` is the database that holds the runs.
        `named`: connection strings of other databases, by the name that runs use.
        """
        self._dsn = dsn
        self._named = {name: other_database_dsn(name, other) for name, other in (named or {}).items()}
        self._fenced = fenced
        self._journal = journal or Journal()

    async def execute(self, claim: Claim) -> Outcome:
        """Run the statements of one claim in one transaction."""
        if isinstance(claim.args, Unreadable):
            return refusal_outcome(f"args: {claim.args.reason}")
        if claim.args and not isinstance(claim.args, dict):
            return refusal_outcome(f"args: expected an object of named parameters, got {type(claim.args).__name__}")
        if claim.owner is None:  # the database sets an owner: a row without one bypassed the interface
            return refusal_outcome("owner: an SQL run has no owner whose rights it could run with")
        parameters = dict(claim.args or {})
        name = parameters.pop("dsn", None)
        if name is not None and not (isinstance(name, str) and name in self._named):
            # Retried: another worker may know this name, or this worker may after its next start.
            return refusal_outcome(
                f"args.dsn: this worker knows no database {name!r:.80} (--sql-dsn NAME=DSN)", retry=True
            )
        own = own_values(claim)
        if taken := next((one for one in parameters if one.startswith(RESERVED)), None):
            return refusal_outcome(f"args.{taken[:60]}: names that begin with {RESERVED} are set by pgsched itself")
        if parameters or f"%({RESERVED}" in claim.task:
            parameters |= {f"{RESERVED}{word}": value for word, value in own.items()}
        notices = self._journal.record(claim)
        fence = (claim.id, claim.token) if self._fenced and name is None else None
        owner = claim.owner if name is None else None
        text = SqlText(f"{claim.task}{trace_comment()}", parameters, owner, fence, texts_of(own))
        dsn = self._dsn if name is None else self._named[name]
        job = SqlJob(dsn, f"sql run {claim.id}", lambda notice: notices.write("log", f"{notice}\n"))
        work = asyncio.create_task(job.run(text))
        try:
            rowcount = await asyncio.shield(work)
        except asyncio.CancelledError:
            await job.stop(work, get_kill_after_s(claim))
            if not has_committed(work):
                raise AttemptCancelled(notices.output.text()) from None
            rowcount = work.result()
        except Exception as error:
            return refusal_outcome(describe_error(error), retry=not is_hopeless(error), log_tail=notices.output.text())
        finally:
            notices.close()
        return Outcome(Result.SUCCEEDED, value={"rowcount": rowcount}, log_tail=notices.output.text())

    async def close(self) -> None:
        """Do nothing: the executor keeps nothing between runs."""


def own_values(claim: Claim) -> dict[str, Any]:
    """Return what a run knows of itself, by the name of the setting; None: it is no slot."""
    return {
        "run_id": claim.id, "attempt": claim.attempt, "job": claim.job, "scheduled_at": claim.scheduled_at,
        "interval_start": claim.interval_start,
    }  # fmt: skip


def texts_of(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as settings, which are texts; an empty text stands for None."""
    found = {word: value.isoformat() if isinstance(value, datetime) else value for word, value in own.items()}
    return {f"pgsched.{word}": "" if value is None else str(value) for word, value in found.items()}


def is_hopeless(error: Exception) -> bool:
    """Check whether the statements would fail in the same way at every attempt.

    - Statements that ended the transaction themselves would commit once more.
    - VACUUM and CREATE DATABASE never run in a transaction.
    - A text whose placeholders cannot be filled is not even sent.
    """
    return isinstance(error, TransactionEnded) or getattr(error, "sqlstate", None) == IN_TRANSACTION or is_unsent(error)


def is_unsent(error: Exception) -> bool:
    """Check whether the text was not sent because its placeholders and its arguments do not match."""
    return type(error).__name__ == "ProgrammingError" and getattr(error, "sqlstate", "") is None


def describe_error(error: Exception) -> str:
    """Return the error as one line, with advice about a literal percent sign where it helps."""
    hint = "; a run with args writes a percent sign as %%" if is_unsent(error) and "placeholder" in str(error) else ""
    return format_error(error) + hint


def trace_comment() -> str:
    """Return the trace's id as an SQL comment for the server's logs and pg_stat_activity; "" without a trace."""
    found = tracing.current_headers().get("traceparent")
    return "" if found is None else f"\n/*traceparent='{found}'*/"


def has_committed(work: asyncio.Task[int]) -> bool:
    """Check whether the job committed before its stop took effect."""
    return work.done() and not work.cancelled() and work.exception() is None
