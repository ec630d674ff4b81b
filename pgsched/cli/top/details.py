"""The pages of `pgsched top` about one run or one job.

Invariant: the facts come first, and the end of a run's output is always visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from rich.text import Text

from pgsched.cli.commands.run.logs import escape_output
from pgsched.cli.commands.run.watch import describe_run
from pgsched.cli.output.printing import STATES, format_cell
from pgsched.cli.top.pieces import Column, Item, Table, fit_text, plain_item, progress_cell, text_of_value
from pgsched.cli.top.tables import describe_attempt, run_item
from pgsched.control_characters import escape_controls
from pgsched.core.progress import parse_progress
from pgsched.core.wording import due_at, format_age, format_short_duration
from pgsched.services.top import Look

Row = dict[str, Any]
LABEL = 11


def fact_item(name: str, value: Any, style: str = "") -> Item:
    """Return a line of a name and a value."""
    return Item((fit_text(Text(name, "bold"), LABEL).append_text(text_of_value(value, style)),))


def run_facts(look: Look) -> list[Item]:
    """Return lines about a run: what it is, its progress, and its failed attempts."""
    (run,) = look.rows["run"]
    title = describe_run(run)
    found = [run_item(run, Text(title, f"bold {STATES.get(run['state'], '')}"))]
    found[0] = Item(found[0].cells, None, found[0].actions, found[0].name, run["job"])
    reported = run["progress"]
    if parse_progress(reported, run["attempt"]) is not None:
        drawn = progress_cell(reported, 24)
        found.append(Item((lambda width: fit_text(Text("progress", "bold"), LABEL).append_text(drawn(width)),)))
    if run["cancel_requested_at"] and run["state"] == "running":
        why = run["cancel_reason"] or "no reason given"
        found.append(fact_item("cancel", f"its worker was asked to stop it: {why}", "yellow"))
    what = [run["kind"], run["task"], f"on queue {run['queue']}", f"priority {run['priority']}", f"by {run['origin']}"]
    found.append(fact_item("what", " ".join(what)))
    found.append(fact_item("args", run["args"]))
    found += time_items(run)
    for name in ("held", "reason", "error"):
        if said_so := (run[name] or "").strip().splitlines():
            found.append(fact_item(name, said_so[-1], "red" if name == "error" else "yellow"))
    if run["result"] is not None:
        found.append(fact_item("result", run["result"]))
    return [*found, *(attempt_item(one) for one in run["attempts"])]


def time_items(run: Row) -> list[Item]:
    """Return lines with the slot, due time, start and end of a run."""
    named = (
        ("slot", run["scheduled_at"]),
        ("due", run["available_at"] and due_at(run)),
        ("started", run["started_at"]),
        ("ended", run["finished_at"]),
    )
    return [
        fact_item(name, f"{format_cell(at)}  ({format_age(at, run['now'])})") for name, at in named if at is not None
    ]


def attempt_item(one: Row) -> Item:
    """Return a line about an attempt that did not succeed."""
    took = one["finished_at"] - one["started_at"] if one["started_at"] else None
    said_so = (one["error"] or "").strip().splitlines()
    text = (
        f"{one['outcome']} after {format_short_duration(took and max(took, timedelta(0)))} on {one['worker'] or '?'}: "
    )
    return fact_item(f"attempt {one['attempt']}", text + (said_so[-1] if said_so else "no error"), "red")


def run_output(look: Look) -> list[Item]:
    """Return the lines that a run printed; after a bad end, also the last traceback."""
    (run,) = look.rows["run"]
    text = escape_output(join_output(look.rows["log"]))
    found = [plain_item(line.expandtabs(4)) for line in text.splitlines()]
    traced = [one["traceback"] for one in run["attempts"] if one["traceback"]]
    if traced and run["state"] != "succeeded":
        lines = escape_output(traced[-1]).splitlines()
        found += [
            plain_item("traceback of the last failed attempt", "bold"),
            *(plain_item(line, "red") for line in lines),
        ]
    return found


def join_output(rows: Iterable[Row]) -> str:
    """Join pieces of output, so that each attempt and each remark begins on a line of its own."""
    text, before = "", None
    for row in rows:
        if text and not text.endswith("\n") and (row["attempt"] != before or row["stream"] == "cut"):
            text += "\n"
        if before is not None and row["attempt"] != before:
            text += f"--- attempt {row['attempt']} ---\n"
        text, before = text + row["chunk"], row["attempt"]
    return text


def job_tables(look: Look) -> list[Table]:
    """Return the page of a job: its facts and its newest runs."""
    (found,) = look.rows["job"]
    active = "active" if found["mode"] == "run" else "shadow"
    state = "paused" if found["paused"] else "error" if found["error"] else active if found["next_run_at"] else "done"
    can = frozenset({"resume" if found["paused"] else "pause"})
    title = Text(f"job {escape_controls(found['name'])}: {state}", f"bold {STATES.get(state, '')}")
    when = (
        f"{found['schedule']} ({found['timezone']})"
        if found["schedule"]
        else f"once, at {format_cell(found['run_at'])}"
    )
    queue = "" if found["queue"] is None else f" on queue {found['queue']}"
    facts = [Item((title,), None, can, f"job {escape_controls(found['name'])[:40]}", found["name"]),
             fact_item("what", f"{found['kind']} {found['task']}{queue}"), fact_item("args", found["args"]),
             fact_item("schedule", when)]  # fmt: skip
    if found["paused"]:
        facts.append(fact_item("paused", f"{format_age(found['paused_at'], found['now'])} by {found['paused_by']}"
                          f": {found['paused_reason'] or 'no reason given'}", "yellow"))  # fmt: skip
    elif state == "shadow":
        facts.append(fact_item("mode", "shadow: its slots are recorded, and nothing runs", "yellow"))
    elif found["next_allowed_at"]:
        at = found["next_allowed_at"]
        facts.append(fact_item("next", f"{format_cell(at)}  ({format_age(at, found['now'])})"))
    if found["error"]:
        facts.append(fact_item("error", found["error"], "red"))
    facts.append(fact_item("policies", f"overlap {found['overlap']}, missed slots: {found['catch_up']}"
                      f", {found['max_attempts'] or 'its task says how many'} attempts"))  # fmt: skip
    return [Table((), tuple(facts)), runs_table(look, found["name"])]


def runs_table(look: Look, name: str) -> Table:
    """Return a table of the newest runs of a job."""
    columns = (Column("RUN", 12, right=True), Column("STATE", 9), Column("SLOT", 23, min_screen=60),
               Column("LATE", 8, right=True), Column("TOOK", 8, right=True), Column("TRY", 5, right=True),
               Column("WHY"))  # fmt: skip
    items = tuple(
        run_item(
            row | {"job": name},
            text_of_value(row["id"]),
            text_of_value(row["state"]),
            text_of_value(row["scheduled_at"]),
            text_of_value(format_short_duration(start_delay(row))),
            text_of_value(format_short_duration(attempt_duration(row))),
            describe_attempt(row),
            text_of_value(row["error"] or row["reason"]),
        )
        for row in look.rows["runs"]
    )
    return Table(columns, items, "it has no runs yet")


def start_delay(row: Row) -> timedelta | None:
    """Return the time from the slot to the start of a first attempt; None for other runs."""
    if row["origin"] != "schedule" or row["attempt"] != 1 or row["started_at"] is None:
        return None
    spent: timedelta = row["started_at"] - row["scheduled_at"]
    return spent


def attempt_duration(row: Row) -> timedelta | None:
    """Return how long the last attempt took or has been running; None before a start and between attempts."""
    if row["started_at"] is None or (row["finished_at"] is None and row["state"] != "running"):
        return None
    spent: timedelta = (row["finished_at"] or row["now"]) - row["started_at"]
    return max(spent, timedelta(0))
