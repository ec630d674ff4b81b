"""`pgsched lock list`, `lock show` and `lock break`: who holds which lock, who waits, and how to take one away."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_locks
from pgsched.cli.messages import print_note
from pgsched.cli.output.printing import format_cell, print_fields, print_json, print_table
from pgsched.core.units import format_count
from pgsched.core.wording import format_age
from pgsched.errors import InputError

if TYPE_CHECKING:
    from datetime import datetime

    from pgsched.db.queries.recipes.locks import Contender
    from pgsched.recipes.overview import LockView

Name = Annotated[str, typer.Argument(metavar="NAME", help="The lock.", autocompletion=complete_locks)]
Prefix = Annotated[str | None, typer.Option("--prefix", help="Only names that begin with this.")]
Limit = Annotated[int, typer.Option(help="At most so many.", min=1, max=100_000)]


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(
        help="Locks and semaphores: list, show, run a command under one, break.\n\n\b\nExample:\n  pgsched lock list",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    noun.command("list")(list_locks)
    noun.command("show")(show)
    noun.command("break")(take_away)
    app.add_typer(noun, name="lock")


def list_locks(
    prefix: Prefix = None,
    everything: Annotated[bool, typer.Option("--all", help="Also names that are not in use.")] = False,
    limit: Limit = 1000,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List the locks that a session holds or waits for, as far as you may see them.

    \b
    Example:
      pgsched lock list --prefix billing/
    """
    from pgsched.recipes import overview as locks

    with session(dsn) as conn:
        found = locks.list_locks(conn, prefix or "", most=limit + 1, only_used=not everything)
    shown = found[:limit]
    if json:
        print_json([without_now(row) for row in shown])
    else:
        lines = [
            [row["name"], locks.describe_kind(row), locks.describe_holders(row),
             format_age(row["held_since"], row["now"]), locks.describe_waiting(row, row["now"])]
            for row in shown
        ]  # fmt: skip
        empty = "no locks" if everything else "no session holds a lock or waits for one"
        print_table(["LOCK", "KIND", "HELD BY", "SINCE", "WAITING"], lines, empty, whole=["SINCE"])
    if len(found) > limit:
        print_note(f"there are more than {limit}: see --prefix and --limit")


def without_now(row: dict[str, Any]) -> dict[str, Any]:
    """Return a lock as JSON shows it: without the time at which it was read."""
    return {name: value for name, value in row.items() if name != "now"}


def show(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Show who holds a lock and who waits for it, in their order.

    SINCE: when it was given, or when the wait began. LEASE: when the session ends, unless its process renews it before.

    \b
    Example:
      pgsched lock show payroll
    """
    from pgsched.recipes import overview as locks

    with session(dsn) as conn:
        found = locks.show_lock(conn, name)
    if json:
        return print_json(
            {**without_now(found.row), "holders": list(map(asdict, found.holders)),
             "waiting": list(map(asdict, found.waiting))}
        )  # fmt: skip
    row = found.row
    print_fields(
        {
            "lock": row["name"],
            "kind": locks.describe_kind(row),
            "owner": row["owner"],
            "holders": len(found.holders),
            "waiting": len(found.waiting),
            "last used": format_age(row["used_at"], row["now"]),
        }
    )
    if found.holders or found.waiting:
        print()
    return print_line(found)


def print_line(found: LockView) -> None:
    """Print the holders of a lock, and those who wait for it."""
    now = found.row["now"]
    lines = [contender_cells(one, now) for one in [*found.holders, *found.waiting]]
    headers = ["STATE", "SESSION", "SINCE", "LEASE", "FENCE", "MODE", "NOTE"]
    print_table(headers, lines, whole=["STATE", "SINCE", "LEASE", "FENCE"])


def contender_cells(one: Contender, now: datetime) -> list[Any]:
    """Return the cells of one contender."""
    holds = one.fence is not None
    since = one.granted_at if holds else one.since
    return ["holds" if holds else "waits", one.session, format_age(since, now), format_age(one.lease_until, now),
            one.fence, one.mode, one.note]  # fmt: skip


def take_away(
    name: Name,
    fence: Annotated[
        int | None, typer.Option("--fence", metavar="N", help="Only from the holder with this fence.", min=1)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Take a lock from its holders, and give it to the next in line. The holders are shown and confirmed first.

    A holder hears it at once, or when it renews its session, and then has to stop by itself. Until it does, only
    `pgsched.assert_lock` keeps it from writing. For the role that used the name first, and for operators; the audit
    has it.

    \b
    Example:
      pgsched lock break payroll --fence 4711
    """
    from pgsched.recipes import overview as locks

    with session(dsn) as conn:
        if not yes:
            confirm_break(locks.show_lock(conn, name), fence, json)
        broken = locks.break_lock(conn, name, fence)
    if json:
        return print_json({"name": name, "broken": broken})
    return print(locks.describe_break(broken, format_cell(name), fence))


def confirm_break(found: LockView, fence: int | None, json: bool) -> None:
    """Show the holders and ask whether to take the lock from them; exit with code 1 if not.

    Raises InputError where a question is impossible (--json, or no terminal).
    """
    losing = [one for one in found.holders if fence in (None, one.fence)]
    if not losing:
        return
    question = f'take "{found.row["name"]}" from {format_count(len(losing), "holder")}?'
    if json or not sys.stdin.isatty():
        raise InputError(f"{question} Add --yes; `pgsched lock show` shows who holds it")
    print_line(found)
    if not typer.confirm(format_cell(question), err=True):
        raise typer.Exit(1)
