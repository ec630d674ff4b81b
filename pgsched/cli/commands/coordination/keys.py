"""`pgsched kv get`, `put`, `list` and `delete`: the values that programs share in the store."""

from __future__ import annotations

import json as encoding
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.commands.coordination.key_output import format_value, print_raw, print_record, print_records
from pgsched.cli.commands.coordination.locks import Limit
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_keys
from pgsched.cli.messages import print_error, print_note
from pgsched.cli.output.printing import format_cell, print_json, print_table
from pgsched.control_characters import escape_controls
from pgsched.core.input_values import LONGEST
from pgsched.core.wording import format_age
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.db.connection.connect import Connection
    from pgsched.recipes.keys import Outcome

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, a path.", autocompletion=complete_keys)]


def register(app: typer.Typer) -> None:
    """Add the noun and its verbs to the command line."""
    noun = typer.Typer(
        help="Small values that programs share: get, put, list, delete, watch.\n\n\b\nExample:\n  pgsched kv list",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    noun.command("get")(get_key)
    noun.command("put")(put)
    noun.command("list")(list_keys)
    noun.command("delete")(delete)
    app.add_typer(noun, name="kv")


def get_key(
    key: Key,
    raw: Annotated[bool, typer.Option("--raw", help="Print a string as plain text, without quotes.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Print the value of a key: JSON on one line. With --json also its version, and when it was written.

    \b
    Example:
      pgsched kv get flags/new-checkout
    """
    from pgsched.recipes import keys

    if raw and json:
        raise InputError("raw: not together with --json", "raw")
    with session(dsn) as conn:
        row = keys.show_key(conn, key)
    if json:
        print_record(row)
    elif raw:
        print_raw(row["value"])
    else:
        print(format_value(row["value"]))


def put(
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON; `-` reads it from standard input.")],
    text: Annotated[bool, typer.Option("--text", help="VALUE is text, and not JSON.")] = False,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", help="Only if this is its version; 0: only if there is no such key."),
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Write a value of up to 64 KiB to a key. With --version only if the key has that version, else exit code 1.

    From standard input, --text leaves out the last line end. A VALUE that begins with a dash goes after `--`.

    \b
    Example:
      pgsched kv put flags/new-checkout true
      pgsched kv put rates/EUR 1.12 --version 7
    """
    from pgsched.recipes import keys

    content = read_value(value, text)
    with session(dsn) as conn:
        done = keys.put_key(conn, key, content, version)
    end_if_refused(done, key, version)
    print_json({"key": key, "version": done.version}) if json else print(
        f"wrote {format_cell(key)}, version {done.version}"
    )


def read_value(given: str, text: bool) -> str:
    """Return the JSON text of a value that is given as JSON or as text, or comes from standard input for `-`.

    Raises InputError where it is not JSON, too long, or holds what PostgreSQL cannot store.
    """
    from pgsched.recipes.values import json_text

    try:
        source = sys.stdin.read(LONGEST + 1) if given == "-" else given
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"value: cannot read standard input: {error}", "value") from None
    if len(source) > LONGEST:
        raise InputError("value: is longer than 64 KiB", "value")
    if text:
        return json_text("value", source.removesuffix("\n") if given == "-" else source)
    try:
        json_text("value", encoding.loads(source))
    except RecursionError:
        raise InputError("value: is nested too deeply for JSON", "value") from None
    except ValueError as error:
        raise InputError(f"value: is not JSON: {error}; with --text it is taken as text", "value") from None
    return source  # with all digits


def end_if_refused(done: Outcome, key: str, version: int | None) -> None:
    """Print why a key was not changed, and exit with code 1, unless it was."""
    from pgsched.recipes.keys import describe_refusal

    if done.version is None:
        raise typer.Exit(print_error(describe_refusal(key, version, done.present), 1, "other_version"))


def list_keys(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="Only keys that begin with this.", autocompletion=complete_keys)
    ] = "",
    names: Annotated[bool, typer.Option("--keys", help="Only the keys, one on each line.")] = False,
    limit: Limit = 1000,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List the keys that begin with a prefix, with their values. Without one, all that this login may use.

    VERSION: for --version of `put` and `delete`.

    \b
    Example:
      pgsched kv list flags/
    """
    with session(dsn) as conn:
        more = print_names(conn, prefix, limit, json) if names else print_keys(conn, prefix, limit, json)
    if more:
        print_note(f"there are more than {limit}: see PREFIX and --limit")


def print_names(conn: Connection[Any], prefix: str, limit: int, json: bool) -> bool:
    """Print the names of up to `limit` keys; return whether there are more."""
    from pgsched.recipes.keys import list_names

    found = list_names(conn, prefix, limit + 1)
    if json:
        print_json(list(islice(found, limit)))
    else:
        for name in islice(found, limit):
            print(escape_controls(name))
    return next(found, None) is not None


def print_keys(conn: Connection[Any], prefix: str, limit: int, json: bool) -> bool:
    """Print up to `limit` keys with their values; return whether there are more."""
    from pgsched.db.queries.reports.live import database_now
    from pgsched.recipes.keys import list_whole_keys

    found = list_whole_keys(conn, prefix, limit + 1)
    shown = list(islice(found, limit))
    if json:
        print_records(shown)
    else:
        now = database_now(conn)
        lines = [
            [row["key"], row["version"], format_age(row["changed_at"], now), format_value(row["value"])]
            for row in shown
        ]
        empty = f"no key begins with {format_cell(prefix)}" if prefix else "there are no keys"
        print_table(["KEY", "VERSION", "CHANGED", "VALUE"], lines, empty, whole=["VERSION", "CHANGED"])
    return next(found, None) is not None


def delete(
    key: Key,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", help="Only if this is its version."),
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Delete a key. With --version only if the key has that version, else exit code 1.

    \b
    Example:
      pgsched kv delete flags/new-checkout
    """
    from pgsched.recipes import keys

    with session(dsn) as conn:
        done = keys.delete_key(conn, key, version)
    end_if_refused(done, key, version)
    if json:
        return print_json({"key": key, "deleted": True, "version": done.version})
    return print(f"deleted {format_cell(key)}")
