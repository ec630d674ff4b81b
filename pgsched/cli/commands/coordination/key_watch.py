"""`pgsched kv watch`: print the changes of keys, until Ctrl-C."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from pgsched.cli.commands.coordination.key_output import format_record, format_value, print_fitting
from pgsched.cli.common import Dsn, Json, session_at
from pgsched.cli.completion import complete_keys
from pgsched.cli.messages import print_note, print_remark
from pgsched.cli.output.printing import format_cell

if TYPE_CHECKING:
    from pgsched.recipes.watch import Change, Watch


class Notes(logging.Handler):
    """Prints what the watch logs, such as that the database is away, as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        try:
            print_note(record.getMessage())
        except OSError:  # nobody reads it
            self.handleError(record)


def register(app: typer.Typer) -> None:
    """Add the verb `watch` to `kv`."""
    for group in app.registered_groups:
        if group.name == "kv" and group.typer_instance is not None:
            group.typer_instance.command("watch")(watch_keys)


def watch_keys(
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX",
            help="A key, or what keys begin with. Its first element is a whole one.",
            autocompletion=complete_keys,
        ),
    ],
    exact: Annotated[bool, typer.Option("--exact", help="Only this key, and no others that begin so.")] = False,
    after: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="Begin with the changes after this version. Default: those from now on."),
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Print each change of the keys that begin with a prefix: when, put or deleted, key, version, value.

    It goes on until Ctrl-C, and misses nothing while the database is away. Of changes that are not kept any more, the
    last 1,000 under a first element are, one line says `skipped`: then read the keys with `kv list`. With --json each
    change is an object on one line.

    \b
    Example:
      pgsched kv watch flags/
    """
    from pgsched import App
    from pgsched.recipes.values import check_version
    from pgsched.recipes.watch import Watch
    from pgsched.recipes.watches import Watches

    if after is not None:
        check_version("after", after)
    with session_at(dsn) as (_, address):
        pass
    logger = logging.getLogger("pgsched.recipes")
    notes = Notes()
    logger.addHandler(notes)
    app = App("pgsched", dsn=address)
    watches = Watches(app.database)
    try:
        with Watch(watches, prefix, since=after, value_of=str) as watch:
            print_changes_until_stopped(watch, prefix, exact, json)
    finally:
        watches.close()
        app.close()
        logger.removeHandler(notes)


def print_changes_until_stopped(watch: Watch, prefix: str, exact: bool, json: bool) -> None:
    """Print changes as they come. At Ctrl-C, say how to go on, and raise KeyboardInterrupt."""
    version = watch.version
    print_remark(f"watching {prefix} after version {version}; Ctrl-C ends it")
    try:
        for change in watch:
            if not exact or change.key == prefix:
                print_change(change, json)
            version = change.version
    except KeyboardInterrupt:
        print_remark(f"to go on from here: --after {version}")
        raise


def print_change(change: Change, json: bool) -> None:
    """Print a change as one line."""
    record = {name: getattr(change, name) for name in ("version", "key", "kind", "value", "changed_at")}
    if json:
        return print(format_record(record), flush=True)
    at, key = format_cell(change.changed_at), format_cell(change.key)
    value = "" if change.value is None else format_value(change.value)
    print_fitting(f"{at}  {change.kind:7}  {key}  {change.version}  {value}".rstrip())
    if change.kind == "skipped":
        print_note(
            f"changes up to version {change.version} are not kept any more: read the keys with `pgsched kv list`"
        )
    return None
