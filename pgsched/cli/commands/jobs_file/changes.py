"""The changes of a file of jobs as JSON and as lines of text."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer

from pgsched.cli.output.printing import format_cell, wrap_for_terminal
from pgsched.core.jobs_file.difference import Action, Change, Difference, list_keys, shown_columns
from pgsched.core.jobs_file.model.columns import What
from pgsched.core.jobs_file.model.entries import JobsFile, Key, describe_key
from pgsched.core.wording import shorten

MARKS = {Action.ADD: "+", Action.CHANGE: "~", Action.REMOVE: "-", Action.ADOPT: "=", Action.REFUSE: "!"}
COLOURS = {
    Action.ADD: "green",
    Action.CHANGE: "yellow",
    Action.REMOVE: "red",
    Action.ADOPT: "cyan",
    Action.REFUSE: "red",
}
COUNTED = {Action.ADD: "to add", Action.CHANGE: "to change", Action.REMOVE: "to remove", Action.ADOPT: "to adopt",
           Action.REFUSE: "refused"}  # fmt: skip
LONGEST_VALUE = 200


def difference_as_json(file: JobsFile, difference: Difference) -> dict[str, Any]:
    """Return a difference for JSON."""
    counts = Counter(change.action for change in difference.changes)
    return {
        "file": file.document.name,
        "owner": difference.owner,
        "summary": {str(action): counts[action] for action in Action},
        "changes": [change_as_json(file, change) for change in difference.changes],
        "left": [key_as_json(key) for key in difference.left],
        "unowned": [key_as_json(key) for key in difference.unowned],
        "notes": list(difference.remarks),
    }


def change_as_json(file: JobsFile, change: Change) -> dict[str, Any]:
    """Return one change for JSON."""
    return {
        "action": str(change.action),
        **key_as_json(change.key),
        "line": None if change.entry is None else file.line(change.entry),
        "columns": {column: {"old": old, "new": new} for column, (old, new) in shown_columns(change).items()},
        "reason": change.reason,
        "adopts": change.adopts,
    }


def key_as_json(key: Key) -> dict[str, str]:
    """Return what an object is, and its name."""
    return {"what": str(key[0]), "name": key[1]}


def print_line(text: str, colour: str | None = None, indent: int = 4) -> None:
    """Print a line: wrapped on a terminal, and coloured there."""
    shown = wrap_for_terminal(text, indent)
    print(typer.style(shown, fg=colour) if colour is not None and sys.stdout.isatty() else shown)


def print_change(change: Change) -> None:
    """Print a change: a line about the object, and one for each column that changes."""
    print_line(f"{MARKS[change.action]} {format_cell(describe_change(change))}", COLOURS[change.action])
    if change.action is Action.ADD and change.key[0] is What.JOB:
        return
    for column, (old, new) in shown_columns(change).items():
        before = "" if change.stored is None else f"{format_value(old)} -> "
        print_line(f"    {column}: {before}{format_value(new)}", indent=6)


def describe_change(change: Change) -> str:
    """Return what a change is about, in one line."""
    what = describe_key(change.key)
    if change.reason is not None:
        return f"{what}: {change.reason}"
    if change.action is Action.ADD and change.entry is not None and change.key[0] is What.JOB:
        values = change.entry.values
        when = "once" if values["schedule"] is None else f"{values['schedule']} ({values['timezone']})"
        state = ", paused" if values["paused"] else ", shadow" if values["mode"] == "shadow" else ""
        return f"{what}: {values['kind']} {shorten(str(values['task']), 60)}, {when}{state}"
    if change.adopts and change.stored is not None:
        return f"{what} becomes the file's own"
    return what


def format_value(value: Any) -> str:
    """Return a value as text of one line."""
    if value is None or isinstance(value, bool):
        return {None: "-", True: "true", False: "false"}[value]
    return shorten(format_cell(value if isinstance(value, (str, dict, list, bool)) else str(value)), LONGEST_VALUE)


def describe_counts(difference: Difference) -> str:
    """Return how many changes of each kind there are: `2 to add, 1 to change`."""
    counts = Counter(change.action for change in difference.changes)
    texts = [f"{counts[action]} {COUNTED[action]}" for action in Action if counts[action]]
    return ", ".join(texts) or "nothing to change"


def notes(difference: Difference) -> Iterator[str]:
    """Yield what a reader of the file should know beside the changes."""
    if difference.left:
        yield f"not in the file any more, and left (--prune removes them): {list_keys(difference.left)}"
    if difference.unowned:
        yield f"as the file says, but not declared by it (--adopt takes them): {list_keys(difference.unowned)}"
    yield from difference.remarks
