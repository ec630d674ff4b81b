"""`pgsched status`: the whole system on one page, with its health as the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import format_cell, print_json, print_table, wrap_for_terminal
from pgsched.cli.times import localize
from pgsched.control_characters import escape_controls
from pgsched.core.text import format_number
from pgsched.core.wording import format_short_duration

if TYPE_CHECKING:
    from pgsched.core.facts import LiveWorker
    from pgsched.services.status_model import Status


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("status")(status)


def status(
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show the whole system and its health.

    Exit code: 0 healthy, 1 unhealthy (the problems are listed), others as in pgsched --help.

    \b
    Example:
      pgsched status --json | jq .problems
    """
    from pgsched.services import status as observe

    with session(dsn) as conn:
        found = observe.read_status(conn)
    print_json(found.to_dict()) if json else print_status(found)
    raise typer.Exit(0 if found.healthy else 1)


def print_status(found: Status) -> None:
    """Print the page for a person."""
    typer.secho("healthy" if found.healthy else "UNHEALTHY", fg="green" if found.healthy else "red", bold=True)
    for one in found.findings:
        print_wrapped("  - " if one.note else "  ! ", one.text, "yellow" if one.note else "red")
        print_wrapped("    -> ", one.cure, "bright_black")
    print(f"\nleader      {describe_leader(found)}")
    workers, taken = found.workers, sum(worker.running for worker in found.workers)
    print(f"workers     {len(workers)} alive, {taken} of {sum(w.concurrency for w in workers)} busy")
    if text := describe_pooler(found):
        print(f"pooler      {text}")
    jobs, finished, attention = found.jobs, found.finished, found.attention
    shadow = f", {jobs.shadow} in mode shadow" if jobs.shadow else ""
    print(f"jobs        {jobs.total}, {jobs.paused} paused, {jobs.broken} in error{shadow}")
    minutes = [(m, getattr(finished, f"done_{m}"), format_number(finished.per_s(m))) for m in (1, 5, 15)]
    rates = ", ".join(f"{done} in {m} min ({per_s}/s)" for m, done, per_s in minutes)
    print(f"executed    {rates}")
    if finished.counted_s is not None:
        span = format_short_duration(finished.counted_s)
        print(f"            (only the newest runs were counted: those of the last {span})")
    more = "+" if attention.sampled else ""
    missed, dead = f"{attention.missed_slots_day}{more} missed", f"{attention.dead_day}{more} dead"
    print(f"last 24 h   {finished.late} late, {missed}, {dead}")
    print(f"dead        {attention.dead}{'+' if attention.uncounted else ''} kept (pgsched run list --state dead)")
    print_tables(found)


def print_wrapped(sign: str, text: str, colour: str) -> None:
    """Print a sentence behind a sign; on a terminal, wrap it and keep its indent."""
    typer.secho(sign + wrap_for_terminal(escape_controls(localize(text)), len(sign)), fg=colour)


def describe_pooler(found: Status) -> str | None:
    """Describe in a line how processes reach the server through a pooler; None if none does."""
    polling = sum(worker.pooler == "transaction" for worker in found.workers)
    if polling:
        return f"in transaction mode: {polling} of {len(found.workers)} workers poll, no notification reaches them"
    if found.pooler or any(worker.pooler for worker in found.workers):
        return f"in {found.pooler or 'session'} mode"
    return None


def describe_leader(found: Status) -> str:
    """Describe in a line which process leads, or which one led last."""
    led = found.leader
    if led is None:
        return "none; no process has ever led"
    if led.alive:
        return f"{escape_controls(led.holder)}, term {led.term}, seen {format_short_duration(led.seen_s)} ago"
    gone = "resigned" if led.resigned else f"last seen {format_short_duration(led.seen_s)} ago"
    return f"none; {escape_controls(led.holder)} (term {led.term}) {gone}"


def print_tables(found: Status) -> None:
    """Print the lists of the page, without empty ones."""
    if found.workers:
        print()
        lines = [
            [w.name, worker_state(w), f"{w.running}/{w.concurrency}", format_short_duration(w.seen_s),
             ",".join(w.queues or ["all"]), ",".join(w.kinds)]
            for w in found.workers
        ]  # fmt: skip
        print_table(["WORKER", "STATE", "BUSY", "SEEN", "QUEUES", "KINDS"], lines)
    if found.queues:
        print()
        queues = [
            [q.name, q.queued, q.running, q.scheduled, q.waiting, format_short_duration(q.oldest_queued_s)]
            for q in found.queues
        ]
        print_table(["QUEUE", "QUEUED", "RUNNING", "SCHEDULED", "WAITING", "OLDEST QUEUED"], queues)
        if not found.counted_all:
            print("(there are more: only the first ones were counted)")
    if found.paused:
        print()
        lines = [
            [p.what if p.what == "all" else f"{p.what} {p.name}", p.paused_by, format_short_duration(p.since_s),
             "by hand" if p.resumes_in_s is None else f"in {format_short_duration(p.resumes_in_s)}", p.reason or "-"]
            for p in found.paused
        ]  # fmt: skip
        print_table(["PAUSED", "BY", "FOR", "RESUMES", "WHY"], lines)
    if found.limits:
        print()
        print_table(["LIMIT", "ADMITTED", "WAITING"], [[b.name, b.admitted, b.waiting] for b in found.limits])
    if found.unroutable:
        print()
        lost = [
            [u.task or f"(any {u.kind})", u.kind, u.queue, u.count, format_short_duration(u.oldest_s)]
            for u in found.unroutable
        ]
        print_table(["UNROUTABLE", "KIND", "QUEUE", "QUEUED", "OLDEST"], lost)
    if found.next_fires:
        print()
        fires = [
            [f.name, time_to_slot(f.in_s), format_cell(f.next_run_at), f.schedule or "once"] for f in found.next_fires
        ]
        print_table(["NEXT", "IN", "SLOT", "SCHEDULE"], fires)
    if found.errors:
        print()
        print_table(["JOB IN ERROR", "ERROR"], [[e.name, e.error] for e in found.errors])


def worker_state(worker: LiveWorker) -> str:
    """Return the state of a worker: `blocked`, `stopping` or `alive`."""
    if worker.blocked_s is not None:
        return "blocked"
    return "stopping" if worker.stopping else "alive"


def time_to_slot(seconds: float) -> str:
    """Return the time until a slot, or `now` for a slot that is due."""
    return format_short_duration(round(seconds)) if seconds >= 1 else "now"
