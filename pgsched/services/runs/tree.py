"""A graph of runs, drawn as a tree in text, and its summary.

Invariant: each run has one line, below the last of the runs that it waits for; the others are named beside it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pgsched.control_characters import escape_controls
from pgsched.core.model import Row

DEEPEST = 36  # columns of lines to the left of a run
NAMED = 5


@dataclass(frozen=True, slots=True)
class Line:
    """A run in the drawing of its graph.

    `lead`: the lines that lead to it.
    `mark`: a mark if it is the run that was asked about.
    `state`: its state, empty for a pruned run.
    `details`: all other text.
    """

    lead: str
    id: int
    mark: str
    state: str
    details: str

    def __str__(self) -> str:
        return f"{self.lead}{self.id}{self.mark}{'  ' if self.state else ''}{self.state}{self.details}"


def lines(found: list[Row], wanted: int) -> Iterator[Line]:
    """Yield the tree, a line for each run; `wanted` is the run that was asked about."""
    runs = {run["id"]: run for run in found}
    below: dict[int | None, list[int]] = defaultdict(list)
    for run in found:
        below[max((parent["id"] for parent in run["parents"]), default=None)].append(run["id"])
    todo = [(run_id, "", "", True) for run_id in reversed(below[None])]
    while todo:
        run_id, before, branch, last = todo.pop()
        lead = before + branch
        lead = lead if len(lead) <= DEEPEST else "… " + lead[-DEEPEST + 2 :]
        yield line(lead, runs[run_id], run_id == wanted)
        inner = before + ("" if not branch else "   " if last else "│  ")
        children = below[run_id]
        for child in reversed(children):
            end = child == children[-1]
            todo.append((child, inner, "└─ " if end else "├─ ", end))


def line(lead: str, run: Row, wanted: bool) -> Line:
    """Return the line of one run: id, state, task, which other runs it waits for, and its error or reason."""
    if run["state"] is None:
        return Line(lead, run["id"], "", "", "  (pruned)")
    others = sorted(run["parents"], key=lambda parent: parent["id"])[:-1]
    parts = [escape_controls(run["task"])]
    if others:
        named = ", ".join(str(parent["id"]) for parent in others[:NAMED])
        parts.append(f"(also after {named}{f' and {len(others) - NAMED} more' if len(others) > NAMED else ''})")
    if any(parent["any_of"] for parent in run["parents"]):
        parts.append("(one of them is enough)")
    why = run["error"] if run["state"] == "dead" else run["reason"]
    if why:
        parts.append(escape_controls(" ".join(why.split())))
    return Line(lead, run["id"], "*" if wanted else "", run["state"], "".join(f"  {part}" for part in parts))


def summary(found: list[Row]) -> str:
    """Return how many runs there are, and how many are in each state."""
    counts = Counter(run["state"] or "pruned" for run in found)
    return f"{format_run_count(len(found))}: " + ", ".join(
        f"{count:,} {state}" for state, count in counts.most_common()
    )


def format_run_count(count: int) -> str:
    """Return a number of runs in words."""
    return f"{count:,} run{'' if count == 1 else 's'}"
