"""The pages of `pgsched top` that list things: runs, queues, jobs, failures and workers.

Invariant: a line knows what it is about and what can be done to it. `frame` and `pieces` decide how it is drawn.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.text import Text

from pgsched.cli.commands.status import time_to_slot
from pgsched.cli.commands.status import worker_state as state_of
from pgsched.cli.top.pieces import Column, Item, Table, draw_bar, plain_item, progress_cell, text_of_value
from pgsched.control_characters import escape_controls
from pgsched.core.facts import LiveWorker, Queue
from pgsched.core.wording import format_age, format_short_duration
from pgsched.services.runs.changes import CANCEL, RETRY
from pgsched.services.top import Look

Row = dict[str, Any]
NAMES = 40
SHOWN_PROBLEMS = 5


def run_item(row: Row, *cells: Any) -> Item:
    """Return a line about a run."""
    can = {"cancel"} if row["state"] in CANCEL.states else {"retry"} if row["state"] in RETRY.states else set()
    name = escape_controls(row.get("job") or row.get("task") or "")[:NAMES]
    return Item(cells, ("run", row["id"]), frozenset(can), f"run {row['id']} {name}".rstrip(), row.get("job"))


def job_item(name: str, paused: bool, *cells: Any) -> Item:
    """Return a line about a job."""
    can = frozenset({"resume" if paused else "pause"})
    return Item(cells, ("job", name), can, f"job {escape_controls(name)[:NAMES]}", name)


def job_or_task(row: Row) -> Text:
    """Return the job of a run, or the task of a run without a job."""
    return text_of_value(row["job"] or row["task"])


def describe_attempt(row: Row) -> Text:
    """Return the attempt of a run and how many it may have, as `1/3`."""
    return text_of_value(f"{row['attempt']}/{row['max_attempts']}")


def running(look: Look) -> list[Table]:
    """Return the page of running runs, the longest first."""
    columns = (Column("RUN", 12, right=True), Column("JOB OR TASK"), Column("QUEUE", 12, min_screen=70),
               Column("TRY", 5, right=True), Column("FOR", 8, right=True), Column("PROGRESS"),
               Column("WORKER", 24, min_screen=110))  # fmt: skip
    items = tuple(
        run_item(row, text_of_value(row["id"]), job_or_task(row), text_of_value(row["queue"]), describe_attempt(row),
                 text_of_value(format_short_duration(max(0.0, (row["now"] - row["started_at"]).total_seconds()))),
                 Text("asked to stop", "yellow") if row["cancel_asked"] else progress_cell(row["progress"]),
                 text_of_value(row["worker"]))
        for row in look.rows["running"]
    )  # fmt: skip
    found = [Table(columns, items, "nothing runs")]
    total = sum(queue.running for queue in look.status.queues)
    if items and total > len(items):
        found.append(remark_table(f"{total} run; these are the {len(items)} at the front of their queues"))
    return found


def remark_table(text: str) -> Table:
    """Return a remark to show below a table."""
    return Table((), (plain_item(text, "dim"),))


QUEUE_COLUMNS = (Column("QUEUE"), Column("QUEUED", 9, right=True), Column("RUNNING", 9, right=True),
                 Column("WAITING", 9, right=True, min_screen=60), Column("SCHEDULED", 9, right=True, min_screen=70),
                 Column("OLDEST", 8, right=True), Column("STATE", 24))  # fmt: skip


def queue_item(look: Look, queue: Queue, settings: str = "") -> Item:
    """Return a line about a queue."""
    pauses = [one for one in look.status.paused if one.what == "all" or (one.what, one.name) == ("queue", queue.name)]
    own = any(one.what == "queue" for one in pauses)
    state = (
        text_of_value(f"paused by {pauses[-1].paused_by}", "yellow") if pauses else text_of_value(settings or "open")
    )
    counts = [text_of_value(f"{n:,}") for n in (queue.queued, queue.running, queue.waiting, queue.scheduled)]
    oldest = text_of_value(format_short_duration(queue.oldest_queued_s))
    can = frozenset({"resume" if own else "pause"})
    return Item((text_of_value(queue.name), *counts, oldest, state), ("queue", queue.name), can,
                f"queue {escape_controls(queue.name)[:NAMES]}")  # fmt: skip


def queues_page(look: Look) -> list[Table]:
    """Return the page of all queues with open runs, settings or a pause."""
    from pgsched.core.wording import describe_queue

    known = {queue.name: queue for queue in look.status.queues}
    settings_of = {row["name"]: describe_queue(row).replace("not limited", "open") for row in look.rows["queues"]}
    names = sorted(known.keys() | settings_of.keys())
    items = tuple(queue_item(look, known.get(name) or Queue(name), settings_of.get(name, "open")) for name in names)
    found = [Table(QUEUE_COLUMNS, items, "no queues")]
    return (
        found if look.status.counted_all else [*found, remark_table("there are more runs: only the first were counted")]
    )


def jobs_page(look: Look) -> list[Table]:
    """Return the page of jobs: in error, then by next slot, then paused, then done."""
    columns = (Column("JOB"), Column("STATE", 7), Column("SCHEDULE", 16, min_screen=76), Column("NEXT", 10, right=True),
               Column("LAST", 10), Column("LATE", 8, right=True), Column("TOOK", 8, right=True))  # fmt: skip
    items = tuple(
        job_item(
            row["name"],
            row["state"] == "paused",
            text_of_value(row["name"]),
            text_of_value(row["state"]),
            text_of_value(row["schedule"] or "once"),
            time_to_next_slot(row),
            text_of_value(row["run_state"]),
            text_of_value(format_short_duration(row["late_s"])),
            text_of_value(format_short_duration(row["took_s"])),
        )
        for row in look.rows["jobs"]
    )
    found = [Table(columns, items, "no jobs" if not look.page.find else "no job has that in its name")]
    total = look.status.jobs.total
    more = f"{total:,} jobs; these are the first {len(items)} (/ finds others)"
    return [*found, remark_table(more)] if look.page.find is None and total > len(items) else found


def time_to_next_slot(row: Row) -> Text:
    """Return the time until a job's next slot."""
    at: datetime | None = row["next_at"]
    return text_of_value("-" if at is None else time_to_slot((at - row["now"]).total_seconds()))


def failures(look: Look) -> list[Table]:
    """Return the page of jobs in error, runs that will be tried again, and runs that ended badly."""
    broken = tuple(
        job_item(one.name, False, text_of_value(one.name), text_of_value(one.error, "red"))
        for one in look.status.errors
    )
    failing = tuple(
        run_item(
            row,
            text_of_value(row["id"]),
            job_or_task(row),
            describe_attempt(row),
            text_of_value(time_to_slot((row["available_at"] - row["now"]).total_seconds())),
            text_of_value(row["why"]),
        )
        for row in look.rows["failing"]
    )
    retried = (Column("RUN", 12, right=True), Column("WILL BE TRIED AGAIN", 28), Column("TRY", 5, right=True),
               Column("IN", 8, right=True), Column("WHY"))  # fmt: skip
    found = [Table((Column("JOB IN ERROR", 30), Column("ERROR")), broken)] if broken else []
    found += [Table(retried, failing)] if failing else []
    return [*found, failed_runs_table(look, look.rows["failures"])]


def failed_runs_table(look: Look, rows: list[Row]) -> Table:
    """Return a table of runs that ended badly."""
    columns = (Column("RUN", 12, right=True), Column("ENDED", 6), Column("JOB OR TASK", 24),
               Column("TRY", 5, right=True), Column("WHEN", 11, right=True), Column("WHY"))  # fmt: skip
    items = tuple(
        run_item(row, text_of_value(row["id"]), text_of_value(row["state"]), job_or_task(row), describe_attempt(row),
                 text_of_value(format_age(row["finished_at"], look.now)), text_of_value(row["why"]))
        for row in rows
    )  # fmt: skip
    return Table(columns, items, "no run that is kept ended badly")


def workers_page(look: Look) -> list[Table]:
    """Return the page of live workers."""
    columns = (Column("WORKER"), Column("STATE", 9), Column("BUSY", 18), Column("SEEN", 7, right=True),
               Column("SINCE", 12, min_screen=100), Column("QUEUES", 16),
               Column("KINDS", 16, min_screen=76))  # fmt: skip
    items = tuple(worker_item(look, worker) for worker in look.status.workers)
    return [Table(columns, items, "no live worker: start a `pgsched worker`")]


def worker_item(look: Look, worker: LiveWorker) -> Item:
    """Return a line about a worker."""
    share = worker.running / max(worker.concurrency, 1)
    busy = Text.assemble((draw_bar(share, 8), "cyan"), f" {worker.running}/{worker.concurrency}")
    lists = (text_of_value(",".join(names)) for names in (worker.queues or ["all"], worker.kinds))
    details = (text_of_value(format_age(worker.started_at, look.now)), *lists)
    return Item(
        (
            text_of_value(worker.name),
            text_of_value(state_of(worker)),
            busy,
            text_of_value(format_short_duration(worker.seen_s)),
            *details,
        ),
        ("worker", worker.id),
        name=f"worker {escape_controls(worker.name)}",
    )


def overview(look: Look) -> list[Table]:
    """Return the first page: problems, alerts, running runs, queues, next slots and failures."""
    found = look.status
    # alerts follow below: Enter opens their jobs
    problems = [one.text for one in found.findings if not one.note and one.kind != "alert"]
    wrong = [plain_item(f"! {problem}", "red") for problem in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        wrong.append(plain_item(f"! and {len(problems) - SHOWN_PROBLEMS} more: pgsched status", "red"))
    wrong += [plain_item(f"- {one.text}", "yellow") for one in found.notes]
    wrong += [plain_item(f"! everything is paused by {one.paused_by}: {one.reason or 'no reason given'}", "yellow")
              for one in found.paused if one.what == "all"]  # fmt: skip
    if "alerts" not in look.rows:
        wrong.append(plain_item("this role may not read alerts", "dim"))
    for one in look.rows.get("alerts", []):
        name = f"{one['job']}: " if one["job"] else ""
        text = text_of_value(
            f"! alert {one['kind']}, {format_age(one['opened_at'], one['now'])}: {name}{one['details']}", "yellow"
        )
        wrong.append(Item((text,), ("job", one["job"]) if one["job"] else None, name="", job=one["job"]))
    queues = sorted(found.queues, key=lambda queue: -(queue.queued + queue.running))[:5]
    fires = Table(
        (Column("NEXT"), Column("IN", 10, right=True), Column("SLOT", 23, min_screen=60), Column("SCHEDULE", 20)),
        tuple(
            job_item(
                fire.name,
                False,
                text_of_value(fire.name),
                text_of_value(time_to_slot(fire.in_s)),
                text_of_value(fire.next_run_at),
                text_of_value(fire.schedule or "once"),
            )
            for fire in found.next_fires
        ),
        "no job has a next slot",
    )
    return [
        *([Table((), tuple(wrong))] if wrong else []),
        running(look)[0],
        Table(QUEUE_COLUMNS, tuple(queue_item(look, queue) for queue in queues), "all queues are empty"),
        fires,
        failed_runs_table(look, look.rows["failures"]),
    ]


def queue(look: Look) -> list[Table]:
    """Return the page of one queue: its runs in the order in which workers claim them."""
    columns = (Column("RUN", 12, right=True), Column("STATE", 9), Column("JOB OR TASK"),
               Column("PRIORITY", 8, right=True), Column("TRY", 5, right=True),
               Column("SINCE", 12, right=True))  # fmt: skip
    items = tuple(
        run_item(
            row,
            text_of_value(row["id"]),
            text_of_value(row["state"]),
            job_or_task(row),
            text_of_value(row["priority"]),
            describe_attempt(row),
            text_of_value(
                format_age(row["started_at"] if row["state"] == "running" else row["available_at"], row["now"])
            ),
        )
        for row in look.rows["runs"]
    )
    return [Table(columns, items, "nothing runs or is queued in it")]
