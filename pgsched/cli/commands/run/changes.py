"""`pgsched run retry` and `run cancel`: of one run, of several, or of all that a filter means.

The rule: many are never changed by a slip. More than ASK are shown and asked about first, and --dry-run only shows.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.commands.run import options
from pgsched.cli.commands.run.tree import change as change_tree
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.output.printing import print_json
from pgsched.control_characters import clean
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.core.model import State
    from pgsched.db.connection.connect import Connection
    from pgsched.db.queries.runs.run_filter import Filter

ASK = 10
SHOWN = 20
Ids = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Runs by id. None: those of the filters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say how many and which, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help=f"Do not ask, though more than {ASK} are meant.")]
Tree = Annotated[bool, typer.Option("--tree", help="The whole graph of runs that wait for each other.")]
Now = Annotated[bool, typer.Option("--now", help="Start them, whatever became of runs that they waited for.")]
Limit = Annotated[int | None, typer.Option(help="At most so many, the oldest first.", min=1)]
Row = dict[str, Any]


def retry(
    run_ids: Ids = None,
    state: options.State = None,
    job: options.Job = None,
    queue: options.Queue = None,
    task: options.Task = None,
    kind: options.Kind = None,
    error: options.Error = None,
    tag: options.Tag = None,
    worker: options.Worker = None,
    since: options.Since = None,
    until: options.Until = None,
    ended_since: options.EndedSince = None,
    ended_until: options.EndedUntil = None,
    limit: Limit = None,
    tree: Tree = False,
    now: Now = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Revive runs that ended badly. Each gets at least one more attempt.

    By id: runs that are dead, cancelled, missed or skipped. By filters: the dead ones, unless --state names others.
    What another session holds or has changed meanwhile is left alone, and so is a run whose unique_key an unfinished
    one has. Exit code: 1 if a run named by its id was left alone. A run that never started waits again for the runs
    that it waited for; for one that did not succeed until you retry that, too. With --tree, all runs of the graph that
    one belongs to: what failed runs again, what was cancelled for it waits again, what succeeded stays.

    \b
    Example:
      pgsched run retry 4711
      pgsched run retry --queue mail --error "connection refused" --ended-since 2h --dry-run
    """
    from pgsched.db.queries.runs import runs

    times = (since, until, ended_since, ended_until)
    wanted = options.chosen(state, job, queue, task, kind, error, tag, worker, times)
    with session(dsn) as conn:
        if tree:
            refuse_both(wanted)
            if now:
                raise InputError("now: a graph that is retried as a whole runs in its order", "now")
            return change_tree(conn, "retry", run_ids, None, dry_run, json)
        if run_ids is not None and len(run_ids) == 1 and not dry_run:
            refuse_both(wanted)
            return retry_one(conn, run_ids[0], now, json)
        many = Many(conn, "retry", "retried", run_ids, dry_run, yes, json)
        usual = runs.RETRIED if run_ids is not None else runs.RETRIED[:1]
        states = many.allowed(wanted, usual, runs.RETRIED)
        ids = many.choose(wanted, states, limit)
        return many.change(ids, lambda: runs.retry_many(conn, ids, states, now))


def retry_one(conn: Connection[Any], run_id: int, now: bool, json: bool) -> None:
    """Revive one run, and say what it waits for."""
    from pgsched.db.queries.runs import graphs, runs

    after = runs.retry(conn, run_id, now)
    parents = graphs.waits_for(conn, run_id) if after == "waiting" else []
    if json:
        return print_json({"id": run_id, "state": after, **({"waits_for": parents} if parents else {})})
    more = f" and {len(parents) - SHOWN} more" if len(parents) > SHOWN else ""
    named = ", ".join(map(str, parents[:SHOWN])) + more
    words = f" for run{'s' * (len(parents) > 1)} {named}; --now starts it without" if parents else ""
    print(f"run {run_id} is {after} again{words}")
    return None


def cancel(
    run_ids: Ids = None,
    reason: Annotated[str | None, typer.Option(help="Why; kept with the run.")] = None,
    state: options.State = None,
    job: options.Job = None,
    queue: options.Queue = None,
    task: options.Task = None,
    kind: options.Kind = None,
    error: options.Error = None,
    tag: options.Tag = None,
    worker: options.Worker = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Limit = None,
    tree: Tree = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Cancel runs. Of one that runs already the worker is asked to stop it, which it hears at once.

    By id or by filters: runs that have not ended. With --tree, all runs of the graph that one belongs to.

    \b
    Example:
      pgsched run cancel 4711 --reason "wrong month"
      pgsched run cancel --job nightly --state queued --dry-run
    """
    from pgsched.db.queries.runs import runs

    wanted = options.chosen(state, job, queue, task, kind, error, tag, worker, (since, until, None, None))
    with session(dsn) as conn:
        if tree:
            refuse_both(wanted)
            return change_tree(conn, "cancel", run_ids, reason, dry_run, json)
        if run_ids is not None and len(run_ids) == 1 and not dry_run:
            refuse_both(wanted)
            what = runs.cancel(conn, run_ids[0], reason)
            words = {"cancelled": "is cancelled", "requested": "is running: its worker was asked to stop it"}
            text = words.get(what, f"had ended already: {what}")
            return print_json({"id": run_ids[0], "result": what}) if json else print(f"run {run_ids[0]} {text}")
        many = Many(conn, "cancel", "cancelled", run_ids, dry_run, yes, json)
        states = many.allowed(wanted, runs.CANCELLED, runs.CANCELLED)
        ids = many.choose(wanted, states, limit)
        return many.change(ids, lambda: runs.cancel_many(conn, ids, reason, states))


class Many:
    """A change of many runs: chosen, shown, asked about, done, told."""

    def __init__(
        self, conn: Connection[Any], verb: str, done: str, given: list[int] | None, dry: bool, yes: bool, json: bool
    ) -> None:
        self.conn, self.verb, self.done = conn, verb, done
        self.given, self.dry, self.yes, self.json = given, dry, yes, json

    def allowed(self, wanted: Filter, usual: tuple[State, ...], all_of: tuple[State, ...]) -> tuple[State, ...]:
        """The states that are meant."""
        if wanted.state is None:
            return usual
        if wanted.state not in all_of:
            raise InputError(
                f"state: a run that is {wanted.state} cannot be {self.done}; {', '.join(all_of)} can", "state"
            )
        return tuple(state for state in all_of if state == wanted.state)

    def choose(self, wanted: Filter, states: tuple[State, ...], limit: int | None) -> list[int]:
        """The ids that are meant, asked about if they are many."""
        from pgsched.db.queries.runs import run_filter

        if self.given is not None:
            refuse_both(wanted)
            ids = sorted(set(self.given))
        elif wanted == run_filter.Filter():
            raise InputError(
                f"nothing to {self.verb}: name runs by id, or by a filter such as --job, --queue or --state"
            )
        else:
            ids = run_filter.ids(self.conn, wanted, states)[:limit]
        if len(ids) > ASK and not (self.dry or self.yes):
            if self.json or not sys.stdin.isatty():
                raise InputError(f"{self.verb} {len(ids)} runs? Add --yes, or --dry-run to see them")
            self.show(ids)
            if not typer.confirm(f"{self.verb} these {len(ids)} runs?", err=True):
                raise typer.Exit(1)
        return ids

    def change(self, ids: list[int], act: Callable[[], list[Row]]) -> None:
        """Do it, or only say it."""
        if self.dry:
            print_json({"dry_run": True, "count": len(ids), "ids": ids}) if self.json else self.show(ids)
            return
        rows = act()
        left = [row for row in rows if row["skipped"] is not None]
        if self.json:
            print_json({self.done: len(rows) - len(left), "skipped": len(left), "runs": rows})
        else:
            self.tell(rows, left)
        if left and self.given is not None:
            raise typer.Exit(1)

    def tell(self, rows: list[Row], left: list[Row]) -> None:
        """How many, and why not the others."""
        asked = sum(row["after"] == "requested" for row in rows)
        running = f" ({asked} of them run: their workers were asked to stop them)" if asked else ""
        print(f"{self.done} {len(rows) - len(left)} of {len(rows)} runs{running}")
        for why, count in Counter(row["skipped"] for row in left).most_common():
            ids = [str(row["id"]) for row in left if row["skipped"] == why]
            more = f" and {count - SHOWN} more" if count > SHOWN else ""
            print(f"left alone: {', '.join(ids[:SHOWN])}{more}: {clean(why)}")

    def show(self, ids: list[int]) -> None:
        """How many and which."""
        from pgsched.cli.commands.run.runs import print_runs
        from pgsched.db.queries.runs import run_filter

        print(f"{self.verb}: {len(ids)} runs" + (f", the first {SHOWN} of them:" if len(ids) > SHOWN else ""))
        found = run_filter.by_id(self.conn, ids[:SHOWN])
        print_runs(found)


def refuse_both(wanted: Filter) -> None:
    """Ids and filters together say two different things."""
    from pgsched.db.queries.runs.run_filter import Filter

    if replace(wanted, limit=Filter().limit) != Filter():
        raise InputError("name runs either by id or by filters, not by both")
