"""Retry and cancel: one run, many runs by their ids or by a filter, or a graph of runs.

Invariant: of many runs, those to be changed are chosen first, and can be shown. A run that is changed by others in
between is left alone, and the result gives the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.model import Row, State
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import graphs, run_filter, runs
from pgsched.db.queries.runs.run_filter import Filter
from pgsched.errors import InputError

MOST = 10_000  # runs that the console and the API change at once
REQUESTED = "requested"  # the result of a cancel while a worker runs the run


@dataclass(frozen=True, slots=True)
class Verb:
    """An action on runs: retry or cancel.

    `states`: states in which a run can be changed.
    `default_states`: states that a filter without a state selects.
    """

    name: str
    participle: str
    states: tuple[State, ...]
    default_states: tuple[State, ...]


RETRY = Verb("retry", "retried", runs.RETRIED, runs.RETRIED[:1])
CANCEL = Verb("cancel", "cancelled", runs.CANCELLED, runs.CANCELLED)
VERBS = {verb.name: verb for verb in (RETRY, CANCEL)}


# ---- one run


@dataclass(frozen=True, slots=True)
class Retried:
    """A run that was revived: its new state, and the runs that it waits for again.

    `left`: runs that ended because of it, and stay as they are.
    """

    id: int
    state: str
    waits_for: list[int]
    left: list[Row]

    @property
    def words(self) -> str:
        """What became of it, as the end of a sentence about the run; for pages and screens."""
        named = ", ".join(str(run["id"]) for run in self.left[:5]) + (" and others" if len(self.left) > 5 else "")
        stays = f"; what waited for it stays as it is: {named}" if self.left else ""
        return f"is {self.state} again{stays}"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Result of a cancel: `cancelled`, `requested` where a worker runs the run, or the state in which it had ended."""

    id: int
    result: str

    @property
    def words(self) -> str:
        """The same as the end of a sentence about the run."""
        words = {"cancelled": "is cancelled", REQUESTED: "is running: its worker was asked to stop it"}
        return words.get(self.result, f"had ended already: {self.result}")


def retry(conn: Connection[Any], run_id: int, *, now: bool = False) -> Retried:
    """Revive a run that ended without success. Raises InputError or NotFound.

    `now`: start it even if the runs that it waited for have failed or are not finished.
    """
    state = runs.retry(conn, run_id, now)
    parents = graphs.waits_for(conn, run_id) if state == State.WAITING else []
    return Retried(run_id, state, parents, graphs.left_behind(conn, [run_id]))


def cancel(conn: Connection[Any], run_id: int, reason: str | None = None) -> Cancelled:
    """Cancel a run, or ask its worker to stop it. Raises NotFound."""
    return Cancelled(run_id, runs.cancel(conn, run_id, reason))


def update(
    conn: Connection[Any],
    run_id: int,
    *,
    priority: int | None = None,
    at: datetime | None = None,
    queue: str | None = None,
) -> State:
    """Change a run that has not started; return its state after that. Raises InputError or NotFound.

    `priority`: 0 to 9, lower goes first. `at`: when it is due. `queue`: where it waits. None leaves it as it is.
    """
    return State(runs.update(conn, run_id, priority=priority, at=at, queue=queue))


@dataclass(frozen=True, slots=True)
class Updated:
    """A run that was changed: its state, priority, queue and due time (`at`) before and after."""

    id: int
    before: Row
    after: Row


def update_shown(
    conn: Connection[Any],
    run_id: int,
    *,
    priority: int | None = None,
    at: datetime | None = None,
    queue: str | None = None,
) -> Updated:
    """Change a run as `update` does; return what it was and what it is. Raises InputError or NotFound."""
    before = changeable_values(conn, run_id)
    update(conn, run_id, priority=priority, at=at, queue=queue)
    return Updated(run_id, before, changeable_values(conn, run_id))


def changeable_values(conn: Connection[Any], run_id: int) -> Row:
    """Return the values of a run that `update` can change. Raises NotFound."""
    run = runs.show_run(conn, run_id)
    return {"state": run["state"], "priority": run["priority"], "queue": run["queue"], "at": run["available_at"]}


# ---- many runs


@dataclass(frozen=True, slots=True)
class Choice:
    """Runs that are to be changed, by ids; only while they are in one of these states."""

    verb: Verb
    ids: list[int]
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """Result of a change of many runs: rows of id, before, after and skipped (null, or why the run was left alone)."""

    rows: list[Row]

    @property
    def left(self) -> list[Row]:
        """The runs that were left alone."""
        return [row for row in self.rows if row["skipped"] is not None]

    @property
    def count(self) -> int:
        """How many runs were changed."""
        return len(self.rows) - len(self.left)

    @property
    def words(self) -> str:
        """`3 of 4 runs`, and how many of them are running."""
        return f"{self.count} of {len(self.rows)} runs{requested_words(self.rows)}"

    @property
    def reasons(self) -> list[tuple[str, list[int]]]:
        """Why runs were left alone, and which: the most frequent reason first."""
        counts = Counter(row["skipped"] for row in self.left)
        return [(why, [row["id"] for row in self.left if row["skipped"] == why]) for why, _ in counts.most_common()]


def choose(
    conn: Connection[Any],
    verb: Verb,
    meant: Sequence[int] | Filter,
    *,
    oldest: int | None = None,
    most: int | None = None,
) -> Choice:
    """Choose runs by ids or by a filter; of a filter, only the `oldest` ones if that number is given.

    Raises InputError for a state in which no run can be changed, and for more than `most` runs.
    """
    if isinstance(meant, Filter):
        states = select_states(verb, meant.state)
        ids = run_filter.ids(conn, meant, states)[:oldest]
    else:
        states, ids = verb.states, sorted(set(meant))
    if most is not None and len(ids) > most:
        raise InputError(f"{len(ids):,} runs are meant; at most {most:,} can be changed at once: narrow them, or use"
                         " `pgsched run`", "ids")  # fmt: skip
    return Choice(verb, ids, states)


def select_states(verb: Verb, state: str | None) -> tuple[State, ...]:
    """Return the states that a filter selects. Raises InputError."""
    if state is None:
        return verb.default_states
    if state not in verb.states:
        raise InputError(
            f"state: a run that is {state} cannot be {verb.participle}; {', '.join(verb.states)} can", "state"
        )
    return (State(state),)


def read_first(conn: Connection[Any], choice: Choice, n: int) -> list[Row]:
    """Return the first `n` runs of a choice, as rows of a list."""
    return run_filter.by_id(conn, choice.ids[:n])


def drop_unfit(conn: Connection[Any], choice: Choice) -> tuple[Choice, list[Row]]:
    """Return the choice without the runs that are in other states now, and those runs."""
    unfit = [run for run in run_filter.by_id(conn, choice.ids) if run["state"] not in choice.states]
    gone = {run["id"] for run in unfit}
    return Choice(choice.verb, [run_id for run_id in choice.ids if run_id not in gone], choice.states), unfit


def change(conn: Connection[Any], choice: Choice, *, reason: str | None = None, now: bool = False) -> Changed:
    """Retry or cancel the runs of a choice. `reason`: for a cancel. `now`: for a retry, as in `retry`."""
    if choice.verb is RETRY:
        return Changed(runs.retry_many(conn, choice.ids, choice.states, now))
    return Changed(runs.cancel_many(conn, choice.ids, reason, choice.states))


def left_behind(conn: Connection[Any], done: Changed, n: int = 100) -> list[Row]:
    """Return up to `n` runs that ended because of these runs, and stay as they are although these were revived."""
    return graphs.left_behind(conn, [row["id"] for row in done.rows if row["skipped"] is None], n)


# ---- a graph of runs


def graph_choice(conn: Connection[Any], verb: Verb, run_id: int) -> Choice:
    """Choose the runs of this run's graph that can be changed. Raises NotFound."""
    ids = [run["id"] for run in graphs.list_graph(conn, run_id) if run["state"] in verb.states]
    return Choice(verb, ids, verb.states)


def retry_graph(conn: Connection[Any], run_id: int) -> list[Row]:
    """Revive all runs of the graph that ended without success; return their ids and new states. Raises NotFound."""
    return graphs.retry_graph(conn, run_id)


def cancel_graph(conn: Connection[Any], run_id: int, reason: str | None = None) -> Changed:
    """Cancel all runs of the graph that have not ended. Raises NotFound."""
    return Changed(graphs.cancel_graph(conn, run_id, reason))


def requested_words(rows: list[Row]) -> str:
    """Return in brackets how many of these runs are still running; empty if none are."""
    asked = sum(row["after"] == REQUESTED for row in rows)
    return f" ({asked} of them run: their workers were asked to stop them)" if asked else ""
