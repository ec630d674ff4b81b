"""`pgsched run retry` and `run cancel`: change one run, several runs, or all runs that match a filter.

Invariant: many runs are never changed by mistake. More than ASK runs are shown and confirmed first, and --dry-run only
shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.commands.run import options
from pgsched.cli.commands.run.tree import change_graph as change_tree
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_note
from pgsched.cli.output.printing import print_json
from pgsched.control_characters import escape_controls
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.core.model import Row
    from pgsched.db.connection.connect import Connection
    from pgsched.db.queries.runs.run_filter import Filter
    from pgsched.services.runs.changes import Changed, Choice, Verb

CONFIRM_ABOVE = 10
SHOWN = 20
Ids = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Runs by id. None: those of the filters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say how many and which, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help=f"Do not ask, though more than {CONFIRM_ABOVE} are meant.")]
Tree = Annotated[bool, typer.Option("--tree", help="The whole graph of runs that wait for each other.")]
Now = Annotated[bool, typer.Option("--now", help="Start them, whatever became of runs that they waited for.")]
Limit = Annotated[int | None, typer.Option(help="At most so many, the oldest first.", min=1)]


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
    from pgsched.services.runs import changes

    times = (since, until, ended_since, ended_until)
    wanted = options.filter_from_options(state, job, queue, task, kind, error, tag, worker, times)
    with session(dsn) as conn:
        if tree:
            refuse_both(wanted)
            if now:
                raise InputError("now: a graph that is retried as a whole runs in its order", "now")
            return change_tree(conn, "retry", run_ids, None, dry_run, json)
        if run_ids is not None and len(run_ids) == 1 and not dry_run:
            refuse_both(wanted)
            return retry_one(conn, run_ids[0], now, json)
        many = BulkChange(conn, changes.RETRY, run_ids, dry_run, yes, json)
        choice = many.choose(wanted, limit)
        return many.change(choice, lambda: changes.change(conn, choice, now=now))


def retry_one(conn: Connection[Any], run_id: int, now: bool, json: bool) -> None:
    """Revive one run, and print which runs it waits for."""
    from pgsched.services.runs import changes

    done = changes.retry(conn, run_id, now=now)
    parents = done.waits_for
    if json:
        more_fields = {"waits_for": parents, "left": [run["id"] for run in done.left]}
        return print_json({"id": run_id, "state": done.state} | {k: v for k, v in more_fields.items() if v})
    more = f" and {len(parents) - SHOWN} more" if len(parents) > SHOWN else ""
    named = ", ".join(map(str, parents[:SHOWN])) + more
    words = f" for run{'s' * (len(parents) > 1)} {named}; --now starts it without" if parents else ""
    print(f"run {run_id} is {done.state} again{words}")
    print_left_behind(done.left, run_id)
    return None


def print_left_behind(left: list[Row], run_id: int) -> None:
    """Print on stderr which runs that ended because of others were not revived with them.

    `run_id`: of one of these others.
    """
    if left:
        named = ", ".join(f"{run['id']} ({run['job'] or run['task']})"[:80] for run in left[:SHOWN])
        more = " and more" if len(left) > SHOWN else ""
        states = "/".join(sorted({run["state"] for run in left}))
        print_note(f"what waited for it stays {states}: {named}{more}; pgsched run retry --tree {run_id} revives all")


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
    from pgsched.services.runs import changes

    wanted = options.filter_from_options(state, job, queue, task, kind, error, tag, worker, (since, until, None, None))
    with session(dsn) as conn:
        if tree:
            refuse_both(wanted)
            return change_tree(conn, "cancel", run_ids, reason, dry_run, json)
        if run_ids is not None and len(run_ids) == 1 and not dry_run:
            refuse_both(wanted)
            done = changes.cancel(conn, run_ids[0], reason)
            return print_json(asdict(done)) if json else print(f"run {done.id} {done.words}")
        many = BulkChange(conn, changes.CANCEL, run_ids, dry_run, yes, json)
        choice = many.choose(wanted, limit)
        return many.change(choice, lambda: changes.change(conn, choice, reason=reason))


class BulkChange:
    """A change of many runs, in steps: choose, confirm, change, report.

    `run_ids`: ids of runs; None if a filter chooses them.
    `dry`: only show the runs.
    `yes`: do not ask.
    """

    def __init__(
        self, conn: Connection[Any], verb: Verb, given: list[int] | None, dry: bool, yes: bool, json: bool
    ) -> None:
        self.conn, self.verb = conn, verb
        self.run_ids, self.dry, self.yes, self.json = given, dry, yes, json

    def choose(self, wanted: Filter, limit: int | None) -> Choice:
        """Choose the runs, and ask for confirmation if there are more than ASK.

        `wanted`: the filter.
        `limit`: change at most this many runs, the oldest first.
        Raises InputError for neither or both of ids and filter, and where a question is impossible (--json, or no
        terminal).
        """
        from pgsched.db.queries.runs.run_filter import Filter
        from pgsched.services.runs import changes

        verb = self.verb.name
        if self.run_ids is not None:
            changes.select_states(self.verb, wanted.state)
            refuse_both(wanted)
        elif wanted == Filter():
            raise InputError(f"nothing to {verb}: name runs by id, or by a filter such as --job, --queue or --state")
        choice = changes.choose(self.conn, self.verb, wanted if self.run_ids is None else self.run_ids, oldest=limit)
        count = len(choice.ids)
        if count > CONFIRM_ABOVE and not (self.dry or self.yes):
            if self.json or not sys.stdin.isatty():
                raise InputError(f"{verb} {count} runs? Add --yes, or --dry-run to see them")
            self.show(choice)
            if not typer.confirm(f"{verb} these {count} runs?", err=True):
                raise typer.Exit(1)
        return choice

    def change(self, choice: Choice, act: Callable[[], Changed]) -> None:
        """Change the chosen runs and print the result; with --dry-run only print the runs.

        The exit code is 1 if a run named by its id was left alone.
        """
        if self.dry:
            ids = choice.ids
            print_json({"dry_run": True, "count": len(ids), "ids": ids}) if self.json else self.show(choice)
            return
        done = act()
        if self.json:
            print_json({self.verb.participle: done.count, "skipped": len(done.left), "runs": done.rows})
        else:
            self.tell(done)
            self.tell_left_behind(done)
        if done.left and self.run_ids is not None:
            raise typer.Exit(1)

    def tell(self, done: Changed) -> None:
        """Print how many runs were changed, and why others were left alone."""
        print(f"{self.verb.participle} {done.words}")
        for why, ids in done.reasons:
            more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
            print(f"left alone: {', '.join(map(str, ids[:SHOWN]))}{more}: {escape_controls(why)}")

    def tell_left_behind(self, done: Changed) -> None:
        """Print which runs that waited for the revived ones were not revived."""
        from pgsched.services.runs import changes

        if self.verb is changes.RETRY and done.count:
            left = changes.left_behind(self.conn, done, SHOWN + 1)
            print_left_behind(left, next(row["id"] for row in done.rows if row["skipped"] is None))

    def show(self, choice: Choice) -> None:
        """Print the number of runs and the first of them."""
        from pgsched.cli.commands.run.runs import print_runs
        from pgsched.services.runs import changes

        count = len(choice.ids)
        print(f"{self.verb.name}: {count} runs" + (f", the first {SHOWN} of them:" if count > SHOWN else ""))
        print_runs(changes.read_first(self.conn, choice, SHOWN))


def refuse_both(wanted: Filter) -> None:
    """Raise InputError if a filter is given as well as ids."""
    from pgsched.db.queries.runs.run_filter import Filter

    if replace(wanted, limit=Filter().limit) != Filter():
        raise InputError("name runs either by id or by filters, not by both")
