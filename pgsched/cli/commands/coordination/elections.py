"""`pgsched election list`: who leads where, and how many stand in line."""

from __future__ import annotations

import typer

from pgsched.cli.commands.coordination.locks import Limit, Prefix, without_now
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_note
from pgsched.cli.output.printing import print_json, print_table
from pgsched.core.wording import format_age


def register(app: typer.Typer) -> None:
    """Add the noun and its verb to the command line."""
    noun = typer.Typer(
        help="Elections of a leader: list.\n\n\b\nExample:\n  pgsched election list",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    noun.command("list")(list_elections)
    app.add_typer(noun, name="election")


def list_elections(prefix: Prefix = None, limit: Limit = 1000, dsn: Dsn = None, json: Json = False) -> None:
    """List the elections that have a leader or candidates. TERM: the number of the leader's term.

    An election is a lock: `pgsched lock show` shows its candidates, and `pgsched lock break` ends a term.

    \b
    Example:
      pgsched election list
    """
    from pgsched.recipes import overview as locks

    with session(dsn) as conn:
        found = locks.list_locks(conn, prefix or "", most=limit + 1, kind="election")
    shown = found[:limit]
    if json:
        print_json([without_now(row) for row in shown])
    else:
        lines = [
            [row["name"], row["holder"], row["fence"], format_age(row["held_since"], row["now"]), row["waiting"]]
            for row in shown
        ]
        headers = ["ELECTION", "LEADER", "TERM", "SINCE", "WAITING"]
        print_table(headers, lines, "no election has a leader or candidates", whole=["TERM", "SINCE"])
    if len(found) > limit:
        print_note(f"there are more than {limit}: see --prefix and --limit")
