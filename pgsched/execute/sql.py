"""The rule: an SQL job is one transaction; it commits as a whole or leaves nothing.

`task` is one or several statements. A non-empty `args` object gives the named parameters (`%(name)s`, and `%%` for a
literal percent sign); without one the text is sent as it is. Notices become the log. On the scheduler's own
database the run's success is recorded by the same transaction, so that a zombie's statements roll back, and those of a
run that succeeded have had their effect once.
"""

from __future__ import annotations

import asyncio

from pgsched.db.sqljob import SqlJob, SqlText
from pgsched.execute.base import Stopped, kill_after_s
from pgsched.execute.capture import Journal
from pgsched.execute.report import one_line, refused
from pgsched.model import Claim, Outcome, Result, Unreadable


class SqlExecutor:
    """Runs statements on the scheduler's database, each run on a connection of its own."""

    abandoned = 0

    def __init__(self, dsn: str, journal: Journal | None = None, *, fenced: bool = False) -> None:
        """`fenced`: the database is the one that holds the runs."""
        self._dsn = dsn
        self._fenced = fenced
        self._journal = journal or Journal()

    async def execute(self, claim: Claim) -> Outcome:
        if isinstance(claim.args, Unreadable):
            return refused(f"args: {claim.args.reason}")
        if claim.args and not isinstance(claim.args, dict):
            return refused(f"args: expected an object of named parameters, got {type(claim.args).__name__}")
        if claim.owner is None:  # the database sets one: a row without was made around it
            return refused("owner: an SQL run has no owner whose rights it could run with")
        notices = self._journal.record(claim)
        held = (claim.id, claim.token) if self._fenced else None
        text = SqlText(claim.task, claim.args or {}, claim.owner, held)
        job = SqlJob(self._dsn, f"sql run {claim.id}", lambda notice: notices.write("log", f"{notice}\n"))
        work = asyncio.create_task(job.run(text))
        try:
            rowcount = await asyncio.shield(work)
        except asyncio.CancelledError:
            await job.stop(work, kill_after_s(claim))
            raise Stopped(notices.output.text()) from None
        except Exception as error:
            return refused(one_line(error), retry=True, log_tail=notices.output.text())
        finally:
            notices.close()
        return Outcome(Result.SUCCEEDED, value={"rowcount": rowcount}, log_tail=notices.output.text())

    async def close(self) -> None:
        """Nothing is held between runs."""
