"""`pgsched lock run`: run a command while holding a lock, as flock(1) does on one machine."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.commands.coordination.locks import Name
from pgsched.cli.common import Dsn, session_at
from pgsched.cli.messages import print_error, print_note
from pgsched.core.input_values import parse_duration, parse_option_duration
from pgsched.errors import DatabaseUnreachable, InputError, LeaseLost, LockTimeout

if TYPE_CHECKING:
    from pgsched import App
    from pgsched.recipes.lock import Lock

NOT_ACQUIRED = 75  # EX_TEMPFAIL of sysexits.h: try again later
CANNOT_RUN, NO_SUCH_COMMAND = 126, 127  # as env(1) and shells have them
ENDING = (signal.SIGTERM, signal.SIGHUP)
LONGEST_TTL_S = 86_400.0


def register(app: typer.Typer) -> None:
    """Add the verb `run` to `lock`."""
    for group in app.registered_groups:
        if group.name == "lock" and group.typer_instance is not None:
            group.typer_instance.command("run")(run)


def run(
    name: Name,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run, after `--`.")],
    wait: Annotated[
        str | None,
        typer.Option("--wait", metavar="TIME", help="Wait in line so long, 0s: not at all. Default: for ever."),
    ] = None,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="TIME", help="How long others wait if this process dies or is cut off.")
    ] = "30s",
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="Take a read lock: several hold it at once, none beside a holder without --shared."
        ),
    ] = False,
    semaphore: Annotated[
        int | None, typer.Option("--semaphore", metavar="N", help="So many may hold it.", min=1, max=10_000)
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", help="What `lock show` says of it. Default: the program's name.")
    ] = None,
    dsn: Dsn = None,
) -> None:
    """Run a command while holding a lock, on any machine: what flock does on one.

    Exit code: that of the command, 128 + N if signal N ended it. 75: the lock was not to be had within --wait. 14: the
    lock was lost, because the database was away or the lock was broken. The command then gets SIGTERM, and SIGKILL
    before the lease ends. 126 and 127: the command cannot be started. Other exit codes: see below.

    PGSCHED_FENCE in the command's environment is the number of the grant: in a transaction,
    `SELECT pgsched.assert_lock('NAME', FENCE)` fails unless the lock is still held. Signals are passed on to the
    command. What it leaves running when it ends goes on without the lock.

    \b
    Example:
      pgsched lock run nightly --wait 10s -- ./report.sh --full
    """
    if shared and semaphore is not None:
        raise InputError("semaphore: not together with --shared: give one of them", "semaphore")
    wait_s = None if wait is None else parse_option_duration("wait", wait).total_seconds()
    ttl_s = parse_duration("ttl", ttl).total_seconds()
    if not 1 <= ttl_s <= LONGEST_TTL_S:
        raise InputError(f"ttl: {ttl} is not between 1s and 1d", "ttl")
    if shutil.which(command[0]) is None:
        there = os.path.exists(command[0]) and os.sep in command[0]  # noqa: PTH110
        raise typer.Exit(cannot_start(command[0], PermissionError() if there else FileNotFoundError()))
    with session_at(dsn) as (_, address):
        pass
    from pgsched import App

    app = App("pgsched", dsn=address)
    with ended_by_signals():
        try:
            note = os.path.basename(command[0]) if note is None else note  # noqa: PTH119 - a name, not a path
            lock = wanted_lock(app, name, ttl_s, shared, semaphore, note)
            code = hold_and_run(lock, wait_s, ttl_s, command)
        finally:
            app.close()
    raise typer.Exit(code)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the program by SystemExit when a signal comes, so that nothing stays in the line of the lock."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wanted_lock(app: App, name: str, ttl_s: float, shared: bool, semaphore: int | None, note: str) -> Lock:
    """Return the lock, read lock or semaphore that the options name."""
    if semaphore is not None:
        return app.semaphore(name, semaphore, ttl=ttl_s, note=note)
    return app.read_lock(name, ttl=ttl_s, note=note) if shared else app.lock(name, ttl=ttl_s, note=note)


def hold_and_run(lock: Lock, wait_s: float | None, ttl_s: float, command: list[str]) -> int:
    """Wait for the lock, run the command, give the lock back; return the exit code. Raises LeaseLost."""
    from pgsched.cli.commands.coordination.held_command import HeldCommand

    child = HeldCommand(lock, ttl_s, command)
    try:
        lock.acquire(wait_s)
    except TimeoutError as error:
        return print_error(str(error), NOT_ACQUIRED, "not_acquired")
    with child.passing_signals_on():
        try:
            code = child.run()
        except OSError as error:
            code = cannot_start(command[0], error)
        try:
            lock.release()
        except (DatabaseUnreachable, LockTimeout) as error:
            print_note(f"the lock could not be given back, and ends by itself within {ttl_s:g} s: {error}")
        except LeaseLost as error:
            raise lost_error(child.was_stopped, code, error) from None
    if child.was_stopped:
        raise lost_error(child.was_stopped, code, LeaseLost(f'"{lock.name}" could not be renewed in time'))
    return code


def lost_error(was_stopped: bool, code: int, error: LeaseLost) -> LeaseLost:
    """Return the error that says that the lock was lost, and what became of the command."""
    return LeaseLost(f"{error}; the command {'was ended' if was_stopped else f'had ended with exit code {code}'}")


def cannot_start(program: str, error: OSError) -> int:
    """Print why the command cannot be started; return the exit code that shells have for that."""
    if isinstance(error, FileNotFoundError):
        return print_error(f'there is no command "{program}"', NO_SUCH_COMMAND, "no_such_command")
    why = error.strerror or "it is not executable"
    return print_error(f'"{program}" cannot be started: {why}', CANNOT_RUN, "cannot_run")
