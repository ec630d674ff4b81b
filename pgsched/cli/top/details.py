"""The pages of `pgsched top` about one run or one job.

Invariant: the facts come first, and the end of a run's output is always visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from rich.text import Text

from pgsched.cli.commands.run.logs import shown
from pgsched.cli.commands.run.watch import heading
from pgsched.cli.output.printing import STATES, cell
from pgsched.cli.top.pieces import Column, Item, Table, fitted, plain, progress, words
from pgsched.cli.top.tables import run_item, tries
from pgsched.control_characters import clean
from pgsched.core.progress import progress_of
from pgsched.core.wording import ago, due, duration
from pgsched.services.top import Look

Row = dict[str, Any]
LABEL = 11


def fact(name: str, value: Any, style: str = "") -> Item:
    """Return a line of a name and a value."""
    return Item((fitted(Text(name, "bold"), LABEL).append_text(words(value, style)),))


def run_facts(look: Look) -> list[Item]:
    """Return lines about a run: what it is, its progress, and its failed attempts."""
    (run,) = look.rows["run"]
    title = heading(run)
    found = [run_item(run, Text(title, f"bold {STATES.get(run['state'], '')}"))]
    found[0] = Item(found[0].cells, None, found[0].can, found[0].about, run["job"])
    reported = run["progress"]
    if progress_of(reported, run["attempt"]) is not None:
        drawn = progress(reported, 24)
        found.append(Item((lambda width: fitted(Text("progress", "bold"), LABEL).append_text(drawn(width)),)))
    if run["cancel_requested_at"] and run["state"] == "running":
        why = run["cancel_reason"] or "no reason given"
        found.append(fact("cancel", f"its worker was asked to stop it: {why}", "yellow"))
    what = [run["kind"], run["task"], f"on queue {run['queue']}", f"priority {run['priority']}", f"by {run['origin']}"]
    found.append(fact("what", " ".join(what)))
    found.append(fact("args", run["args"]))
    found += times(run)
    for name in ("held", "reason", "error"):
        if said_so := (run[name] or "").strip().splitlines():
            found.append(fact(name, said_so[-1], "red" if name == "error" else "yellow"))
    if run["result"] is not None:
        found.append(fact("result", run["result"]))
    return [*found, *(attempt(one) for one in run["attempts"])]


def times(run: Row) -> list[Item]:
    """Return lines with the slot, due time, start and end of a run."""
    named = (("slot", run["scheduled_at"]), ("due", run["available_at"] and due(run)), ("started", run["started_at"]),
             ("ended", run["finished_at"]))  # fmt: skip
    return [fact(name, f"{cell(at)}  ({ago(at, run['now'])})") for name, at in named if at is not None]


def attempt(one: Row) -> Item:
    """Return a line about an attempt that did not succeed."""
    took = one["finished_at"] - one["started_at"] if one["started_at"] else None
    said_so = (one["error"] or "").strip().splitlines()
    text = f"{one['outcome']} after {duration(took and max(took, timedelta(0)))} on {one['worker'] or '?'}: "
    return fact(f"attempt {one['attempt']}", text + (said_so[-1] if said_so else "no error"), "red")


def run_output(look: Look) -> list[Item]:
    """Return the lines that a run printed; after a bad end, also the last traceback."""
    (run,) = look.rows["run"]
    text = shown(joined(look.rows["log"]))
    found = [plain(line.expandtabs(4)) for line in text.splitlines()]
    traced = [one["traceback"] for one in run["attempts"] if one["traceback"]]
    if traced and run["state"] != "succeeded":
        lines = shown(traced[-1]).splitlines()
        found += [plain("traceback of the last failed attempt", "bold"), *(plain(line, "red") for line in lines)]
    return found


def joined(rows: Iterable[Row]) -> str:
    """Join pieces of output, so that each attempt and each remark begins on a line of its own."""
    text, before = "", None
    for row in rows:
        if text and not text.endswith("\n") and (row["attempt"] != before or row["stream"] == "cut"):
            text += "\n"
        if before is not None and row["attempt"] != before:
            text += f"--- attempt {row['attempt']} ---\n"
        text, before = text + row["chunk"], row["attempt"]
    return text


def job(look: Look) -> list[Table]:
    """Return the page of a job: its facts and its newest runs."""
    (found,) = look.rows["job"]
    state = "paused" if found["paused"] else "error" if found["error"] else "active" if found["next_run_at"] else "done"
    can = frozenset({"resume" if found["paused"] else "pause"})
    title = Text(f"job {clean(found['name'])}: {state}", f"bold {STATES.get(state, '')}")
    when = f"{found['schedule']} ({found['timezone']})" if found["schedule"] else f"once, at {cell(found['run_at'])}"
    queue = "" if found["queue"] is None else f" on queue {found['queue']}"
    facts = [Item((title,), None, can, f"job {clean(found['name'])[:40]}", found["name"]),
             fact("what", f"{found['kind']} {found['task']}{queue}"), fact("args", found["args"]),
             fact("schedule", when)]  # fmt: skip
    if found["paused"]:
        facts.append(fact("paused", f"{ago(found['paused_at'], found['now'])} by {found['paused_by']}"
                          f": {found['paused_reason'] or 'no reason given'}", "yellow"))  # fmt: skip
    elif found["next_allowed_at"]:
        at = found["next_allowed_at"]
        facts.append(fact("next", f"{cell(at)}  ({ago(at, found['now'])})"))
    if found["error"]:
        facts.append(fact("error", found["error"], "red"))
    facts.append(fact("policies", f"overlap {found['overlap']}, missed slots: {found['catch_up']}"
                      f", {found['max_attempts'] or 'its task says how many'} attempts"))  # fmt: skip
    return [Table((), tuple(facts)), history(look, found["name"])]


def history(look: Look, name: str) -> Table:
    """Return a table of the newest runs of a job."""
    columns = (Column("RUN", 12, right=True), Column("STATE", 9), Column("SLOT", 23, wide=60),
               Column("LATE", 8, right=True), Column("TOOK", 8, right=True), Column("TRY", 5, right=True),
               Column("WHY"))  # fmt: skip
    items = tuple(
        run_item(row | {"job": name}, words(row["id"]), words(row["state"]), words(row["scheduled_at"]),
                 words(duration(late(row))), words(duration(took(row))), tries(row),
                 words(row["error"] or row["reason"]))
        for row in look.rows["runs"]
    )  # fmt: skip
    return Table(columns, items, "it has no runs yet")


def late(row: Row) -> timedelta | None:
    """Return the time from the slot to the start of a first attempt; None for other runs."""
    if row["origin"] != "schedule" or row["attempt"] != 1 or row["started_at"] is None:
        return None
    spent: timedelta = row["started_at"] - row["scheduled_at"]
    return spent


def took(row: Row) -> timedelta | None:
    """Return how long the last attempt took or has been running; None before a start and between attempts."""
    if row["started_at"] is None or (row["finished_at"] is None and row["state"] != "running"):
        return None
    spent: timedelta = (row["finished_at"] or row["now"]) - row["started_at"]
    return max(spent, timedelta(0))
