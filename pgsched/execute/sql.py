"""The rule: an SQL job is one transaction; it commits as a whole or leaves nothing.

`task` is one or several statements. An `args` object gives the named parameters (`%(name)s`, and `%%` for a literal
percent sign); without any the text is sent as it is. Its key `dsn` is none: it names another database, which the worker
knows by that name, and where the rights are those of its login. Notices become the log. On the scheduler's own
database the run's success is recorded by the same transaction, so that a zombie's statements roll back, and those of a
run that succeeded have had their effect once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pgsched.app.signals import one_line
from pgsched.core.model import Claim, Outcome, Result, Unreadable
from pgsched.db.sql_jobs import SqlJob, SqlText, TransactionEnded, elsewhere
from pgsched.execute.base import Stopped, kill_after_s
from pgsched.execute.outcomes import refused
from pgsched.execute.output.record import Journal
from pgsched.telemetry import tracing

IN_TRANSACTION = "25001"  # "cannot run inside a transaction block"


class SqlExecutor:
    """Runs statements on the scheduler's database or a named one, each run on a connection of its own."""

    abandoned = 0

    def __init__(
        self, dsn: str, journal: Journal | None = None, *, fenced: bool = False, named: Mapping[str, str] | None = None
    ) -> None:
        """`fenced`: the database is the one that holds the runs. `named`: other databases. Raises InputError."""
        self._dsn = dsn
        self._named = {name: elsewhere(name, other) for name, other in (named or {}).items()}
        self._fenced = fenced
        self._journal = journal or Journal()

    async def execute(self, claim: Claim) -> Outcome:
        if isinstance(claim.args, Unreadable):
            return refused(f"args: {claim.args.reason}")
        if claim.args and not isinstance(claim.args, dict):
            return refused(f"args: expected an object of named parameters, got {type(claim.args).__name__}")
        if claim.owner is None:  # the database sets one: a row without was made around it
            return refused("owner: an SQL run has no owner whose rights it could run with")
        parameters = dict(claim.args or {})
        name = parameters.pop("dsn", None)
        if name is not None and not (isinstance(name, str) and name in self._named):
            # Retried: another worker may know it, or this one after its next start.
            return refused(f"args.dsn: this worker knows no database {name!r:.80} (--sql-dsn NAME=DSN)", retry=True)
        notices = self._journal.record(claim)
        held = (claim.id, claim.token) if self._fenced and name is None else None
        text = SqlText(f"{claim.task}{comment()}", parameters, claim.owner if name is None else None, held)
        dsn = self._dsn if name is None else self._named[name]
        job = SqlJob(dsn, f"sql run {claim.id}", lambda notice: notices.write("log", f"{notice}\n"))
        work = asyncio.create_task(job.run(text))
        try:
            rowcount = await asyncio.shield(work)
        except asyncio.CancelledError:
            await job.stop(work, kill_after_s(claim))
            if not committed(work):
                raise Stopped(notices.output.text()) from None
            rowcount = work.result()
        except Exception as error:
            return refused(in_words(error), retry=not is_hopeless(error), log_tail=notices.output.text())
        finally:
            notices.close()
        return Outcome(Result.SUCCEEDED, value={"rowcount": rowcount}, log_tail=notices.output.text())

    async def close(self) -> None:
        """Nothing is held between runs."""


def is_hopeless(error: Exception) -> bool:
    """Would it fail in the same way whenever it is tried? One that ended the transaction would commit once more; VACUUM
    and CREATE DATABASE never run in one; a text whose placeholders cannot be filled is not even sent."""
    return isinstance(error, TransactionEnded) or getattr(error, "sqlstate", None) == IN_TRANSACTION or is_unsent(error)


def is_unsent(error: Exception) -> bool:
    """Did the text and its arguments not fit together?"""
    return type(error).__name__ == "ProgrammingError" and getattr(error, "sqlstate", "") is None


def in_words(error: Exception) -> str:
    """The error, with what to do about a percent sign."""
    hint = "; a run with args writes a percent sign as %%" if is_unsent(error) and "placeholder" in str(error) else ""
    return one_line(error) + hint


def comment() -> str:
    """The trace, as a comment that the server's logs and pg_stat_activity show; nothing where there is none."""
    found = tracing.carried().get("traceparent")
    return "" if found is None else f"\n/*traceparent='{found}'*/"


def committed(work: asyncio.Task[int]) -> bool:
    """Had it gone too far to be stopped?"""
    return work.done() and not work.cancelled() and work.exception() is None
