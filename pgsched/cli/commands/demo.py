"""`pgsched demo`: run four jobs on a real database, show them live, and check every slot at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, migrated_database

if TYPE_CHECKING:
    from rich.console import Console

    from pgsched.db.connection.connect import Connection

SETTLE_S = 15.0
COMMAND = ["worker", "--concurrency", "8", "--allow", "task,command,sql", "--app", "pgsched.cli.demo_app:app"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("demo")(demo)


def demo(
    dsn: Dsn = None,
    seconds: Annotated[float | None, typer.Option(help="End by itself after so many seconds.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Run four real jobs on the embedded PostgreSQL and watch them.

    Starts the database, creates the jobs by plain INSERT, starts a worker, and shows what happens until Ctrl-C (or
    --seconds). Exit code 0 only if every slot that came due ran and succeeded.

    Where --dsn or the environment names a database, the jobs are made there, and paused at the end. It has to be
    migrated already (else exit code 5). Use one to play with: the demo's worker takes its other commands, SQL jobs and
    leadership, too.

    Example: pgsched demo --seconds 20
    """
    from rich.console import Console

    from pgsched.cli import demo_app as content
    from pgsched.cli.output.printing import print_json
    from pgsched.db.connection.connect import connect
    from pgsched.db.schema import version
    from pgsched.errors import PgschedError

    console = Console(highlight=False, stderr=as_json)
    with migrated_database(dsn) as address:
        with connect(address, purpose="demo") as conn, interrupts() as interrupted:
            version.check_version(conn)
            folder = demo_folder()
            start = prepare(conn, console, folder)
            with worker_process(dsn, folder, console) as process:
                end = show_until_end(conn, console, start, seconds, process, interrupted)
                due, missing = content.count_due_slots(conn, start, end), content.unfinished_slots(conn, start, end)
                pause_and_finish(conn, console, process)
                died = process.poll()
            if died is not None:
                raise PgschedError(f"the demo's worker ended with exit code {died}: {last_log_line(folder)}")
            summarise(console, due, missing, folder)
        if as_json:
            print_json({"due": due, "missing": missing, "file": str(folder / "stamps.txt")})
    raise typer.Exit(0 if due and not missing else 1)


def demo_folder() -> Path:
    """Return the folder of the demo's log and file, made beside the data of the embedded server."""
    from pgsched.db.embedded.server import data_dir

    folder = data_dir() / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of ending; yield the list of signals that came."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def prepare(conn: Connection[Any], console: Console, folder: Path) -> datetime:
    """Create what is missing, printing every statement.

    Returns the database's time before the first statement.
    """
    from pgsched.cli import demo_app as content
    from pgsched.db.queries.reports.live import database_now

    existing = content.existing_names(conn)
    start = database_now(conn)
    if existing:
        console.print(f"[bold]Found {len(existing)} jobs and their history[/bold] from an earlier demo. Once more:\n")
    else:
        console.print("[bold]A job is a row.[/bold] These statements would do the same from any language:\n")
    for statement in content.statements(existing, folder / "stamps.txt"):
        console.print(statement + ";\n", style="cyan", markup=False, soft_wrap=True)
        conn.execute(statement.encode())
    return start


@contextmanager
def worker_process(dsn: str | None, folder: Path, console: Console) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker as a process of its own, as a person would; drain it when the `with` block ends.

    The worker finds the database as this process did. A DSN given as an option goes into its environment, because every
    user of the machine can read a command line. `terminate` drains; after 45 seconds the worker is killed.
    """
    log = folder / "worker.log"
    console.print(f"[bold]$ pgsched {' '.join(COMMAND)}[/bold]", soft_wrap=True)
    console.print(f"[dim]# its log: {log}[/dim]\n", soft_wrap=True)
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "pgsched", *COMMAND],
            env={**os.environ, "PGSCHED_DSN": dsn} if dsn else None,
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(45)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_log_line(folder: Path) -> str:
    """Return the last line of the worker's log, and where the log is."""
    log = folder / "worker.log"
    lines = log.read_text("utf-8", "replace").split("\n")
    return f"{next((line.strip() for line in reversed(lines) if line.strip()), 'it said nothing')} (its log: {log})"


def show_until_end(
    conn: Connection[Any],
    console: Console,
    start: datetime,
    seconds: float | None,
    process: subprocess.Popen[bytes],
    interrupted: list[int],
) -> datetime:
    """Show the live table until the time is over, then wait for the runs of due slots.

    `seconds`: how long to show it; None until an interrupt.
    `interrupted`: the list of `interrupts`; a signal in it ends the watching.
    Returns the database's time when the table ended: slots after it are not checked.
    """
    from rich.live import Live

    from pgsched.cli import demo_app as content
    from pgsched.cli.output.live_view import render
    from pgsched.db.queries.reports.live import database_now
    from pgsched.services.live_view import read_live_view

    until = None if seconds is None else time.monotonic() + seconds
    plain = not console.is_terminal
    shown = 0.0
    with Live(console=console, auto_refresh=False, transient=False) as view:
        while not interrupted and process.poll() is None and (until is None or time.monotonic() < until):
            if not plain or time.monotonic() - shown >= 5:
                shown = time.monotonic()
                view.update(render(read_live_view(conn, start), until and until - shown), refresh=True)
            time.sleep(0.25)
        end = database_now(conn)
        patience = time.monotonic() + SETTLE_S
        while content.unfinished_slots(conn, start, end) and time.monotonic() < patience and process.poll() is None:
            time.sleep(0.1)
        view.update(render(read_live_view(conn, start), None), refresh=True)
    return end


def pause_and_finish(conn: Connection[Any], console: Console, process: subprocess.Popen[bytes]) -> None:
    """Pause the jobs, then wait until the worker has finished open runs.

    Paused jobs do not fire when another worker uses the database later.
    """
    from pgsched.cli import demo_app as content

    console.print("\n" + content.PAUSE + ";", style="cyan", markup=False, soft_wrap=True)
    conn.execute(content.PAUSE.encode())
    patience = time.monotonic() + SETTLE_S
    while content.count_demo_runs(conn) and time.monotonic() < patience and process.poll() is None:
        time.sleep(0.1)


def summarise(console: Console, due: dict[str, int], missing: dict[str, list[datetime]], folder: Path) -> None:
    """Print, for every job, how many of its due slots the database shows as succeeded."""
    console.print()
    for name, count in due.items():
        failed = missing.get(name, [])
        mark = "[red]✗[/red]" if failed else "[green]✓[/green]"
        console.print(f"{mark} {name}: {count - len(failed)} of {count} due slots succeeded")
        for slot in failed[:3]:
            console.print(f"    not done: {slot:%H:%M:%S}   (pgsched run list --job {name})", style="red")
    console.print(
        f"\nThe file a command wrote: {folder / 'stamps.txt'}\n"
        "Look further: pgsched status, pgsched job list, pgsched run list, pgsched psql",
        style="dim",
        soft_wrap=True,
    )
