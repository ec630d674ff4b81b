"""Runs programs for the command and shell executors: environment, stop, and the outcome of an exit code.

Invariant: a program runs in its own session, in a clean environment, and nothing in that session outlives the run.

Work that is meant to outlive its run must leave the session (setsid). To stop a run, the whole session gets SIGTERM
and, after `kill_after`, SIGKILL. A program that cannot be started is a failure that is retried, because an operator can
fix it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from dataclasses import replace
from typing import Any

from pgsched.core.model import Claim, Outcome, Result, Unreadable
from pgsched.execute.base import AttemptCancelled, get_kill_after_s
from pgsched.execute.outcomes import refusal_outcome
from pgsched.execute.output.head_tail import HeadTail
from pgsched.execute.output.record import Journal, Record
from pgsched.execute.subprocess.account import Account
from pgsched.execute.subprocess.child import Child, Program
from pgsched.execute.subprocess.process_groups import Groups
from pgsched.telemetry import tracing

KILLED_WITHIN_S = 3.0
UNKNOWN = "exit code unknown: something else in the worker's process waits for its children"
INHERITED = {"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8"}


class Processes:
    """The processes of one worker: starts, watches and ends them. The command and shell executors share it."""

    def __init__(self, journal: Journal | None = None, account: Account | None = None) -> None:
        """Make it. `account`: the user that programs run as; None: the worker's user."""
        self._account = account
        self._groups = Groups()
        self._journal = journal or Journal()

    async def run(self, program: Program, claim: Claim) -> Outcome:
        """Run a program to its end and return the outcome.

        Raises Stopped where the attempt is cancelled.
        """
        if isinstance(claim.options, Unreadable):
            return refusal_outcome(f"options: {claim.options.reason}")
        record = self._journal.record(claim)
        try:
            child = self._start(program, claim, record)
        except BaseException as error:
            self._groups.not_begun()
            record.close()
            return outcome_of_start_error(program, error)
        self._groups.add(child.group)
        try:
            await child.ended()
        except asyncio.CancelledError:
            await _stop(child, get_kill_after_s(claim))
            self._release(child)
            raise AttemptCancelled(record.output.text()) from None
        finally:
            self._release(child)
            record.close()
        return outcome_of_exit(claim, child.returncode, record.output)

    def _start(self, program: Program, claim: Claim, record: Record) -> Child:
        self._groups.start()
        env = environment(claim, program.env, self._account)
        enlist = self._groups.enlisting()
        return Child(replace(program, env=env, account=self._account), record, enlist)

    def _release(self, child: Child) -> None:
        child.kill()  # processes that the program left running end with it
        child.finish()
        self._groups.remove(child.group)

    async def close(self) -> None:
        """End the guard."""
        self._groups.close()


async def _stop(child: Child, grace_s: float) -> None:
    gone = asyncio.create_task(child.all_ended())
    try:
        child.signal(signal.SIGTERM)
        child.signal(signal.SIGCONT)  # a stopped process gets SIGTERM only when it continues
        await asyncio.wait({gone}, timeout=grace_s)
    finally:  # also when a second cancellation cuts the grace time short
        child.kill()
        await asyncio.wait({gone}, timeout=KILLED_WITHIN_S)
        gone.cancel()


def environment(claim: Claim, declared: dict[str, str], account: Account | None = None) -> dict[str, str]:
    """Return a clean environment: a few inherited names, the job's variables, and those that name the attempt."""
    run = {"PGSCHED_RUN_ID": str(claim.id), "PGSCHED_ATTEMPT": str(claim.attempt), "PGSCHED_TOKEN": str(claim.token)}
    if claim.scheduled_at is not None:
        run["PGSCHED_SCHEDULED_AT"] = claim.scheduled_at.isoformat()
    if claim.interval_start is not None:
        run["PGSCHED_INTERVAL_START"] = claim.interval_start.isoformat()
    inherited = {name: os.environ.get(name, default) for name, default in INHERITED.items()}
    if account is not None:
        inherited |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
    trace = {name.upper(): value for name, value in tracing.current_headers().items()}
    return {**inherited, "TZ": "UTC", **trace, **declared, **run}


def outcome_of_start_error(program: Program, error: BaseException) -> Outcome:
    """Return the outcome of a program that could not be started. Raises an error that is no such failure."""
    if isinstance(error, OSError | subprocess.SubprocessError):
        return refusal_outcome(describe_start_error(program, error), retry=True)
    if isinstance(error, ValueError):  # a NUL character
        return refusal_outcome(f"task: {program.argv[0]!r}: {error}")
    raise error


def describe_start_error(program: Program, error: OSError | subprocess.SubprocessError) -> str:
    """Return why the program could not be started, in terms of the job's own values."""
    reason = str(getattr(error, "strerror", None) or error).lower()
    if program.cwd is not None and isinstance(error, OSError) and error.filename == program.cwd:
        return f"cwd: cannot change to {program.cwd!r}: {reason}"
    name = program.argv[0]
    hint = ": a command is one program, its arguments belong in args; or use kind shell" if " " in name.strip() else ""
    return f"task: cannot start {name!r}: {reason}{hint}"


def outcome_of_exit(claim: Claim, code: int | None, output: HeadTail) -> Outcome:
    """Return the outcome of a program that ended by itself.

    Death by signal N counts as exit code 128 + N, as in a shell.
    """
    if code is None:
        return refusal_outcome(UNKNOWN, retry=True, log_tail=output.text())
    shown = code if code >= 0 else 128 - code
    log_tail = output.text()
    success_codes, retry_codes = exit_codes(claim, "success_codes"), exit_codes(claim, "retry_codes")
    if shown in (success_codes if success_codes is not None else [0]):
        return Outcome(Result.SUCCEEDED, value={"exit_code": shown}, log_tail=log_tail)
    retry = shown not in (exit_codes(claim, "dead_codes") or []) and (retry_codes is None or shown in retry_codes)
    last_line = output.last_line()
    how = f"exit code {code}" if code >= 0 else f"killed by {signal_name(-code)}"
    return refusal_outcome(f"{how}: {last_line}" if last_line else how, retry=retry, log_tail=log_tail)


def exit_codes(claim: Claim, name: str) -> list[Any] | None:
    """Return the exit codes that the run's option `name` lists.

    Returns None where the option is missing, or is not a list (in a row older than the check that refuses it).
    """
    options: Any = claim.options
    found = options.get(name) if isinstance(options, dict) else None
    return found if isinstance(found, list) else None


def signal_name(number: int) -> str:
    """Return the signal's name, such as SIGTERM, or "signal N" where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
