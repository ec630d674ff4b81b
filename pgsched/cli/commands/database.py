"""`pgsched migrate`, `check` and `psql`: install the schema, check the setup, open psql."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pgsched.cli.common import Apps, Dsn, Json, find_database, migrate_embedded
from pgsched.cli.output.printing import print_json, wrap_for_terminal
from pgsched.control_characters import escape_controls
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.services.check import Finding


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("migrate")(migrate)
    app.command("check")(check)
    app.command("psql", context_settings={"ignore_unknown_options": True})(psql)


def migrate(
    set_search_path: Annotated[
        bool,
        typer.Option(
            "--set-search-path",
            help="Let plain `INSERT INTO jobs` work in new sessions. Not beside tables of an application's own that are"
            " called jobs, runs, workers, queues, alerts...: it would take ours for them, or drop ours. Refused where"
            " there are such tables on the path.",
        ),
    ] = False,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print a psql script that does it, for an empty or an older database.")
    ] = False,
    with_roles: Annotated[
        bool, typer.Option("--roles", help="Also make the roles of least privilege; with --sql, print only those.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="VERSION", help="Stop at this version; there is no way back."),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, max=1e6, help="Seconds to try for a lock that another session holds.")
    ] = 600,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Install or upgrade the schema. Safe to repeat and to run from several places at once.

    Workers go on meanwhile: no lock is held for long, nor waited for for more than half a second at a time. What it
    does, and which session is in the way, goes to standard error. Where it was cut off, it goes on.

    Exit code: 1 if a session was in the way for longer than --wait, 5 if the schema was made before 0.1.0, 6 if it is
    newer than this program, 7 if the role may not create it.

    \b
    Example:
      pgsched migrate
      pgsched migrate --roles
      pgsched migrate --sql | psql -f - "$PGSCHED_DSN"
      pgsched migrate --to 1000_initial
    """
    from pgsched.db.schema import migrate as moving
    from pgsched.db.schema import roles, script

    if as_sql:
        if to is not None or set_search_path:
            raise InputError("sql: the script leads to this program's version and no further: leave that out", "sql")
        return typer.echo(roles.script() if with_roles else script.upgrade_sql())
    place = find_database(dsn)
    upgrade = migrate_embedded if place.embedded else moving.upgrade
    before, after = upgrade(
        place.dsn, set_search_path=set_search_path, with_roles=with_roles, to=to, wait_s=wait, tell=print_step
    )
    if json:
        return print_json({"before": before, "after": after, "roles": with_roles})
    if with_roles:
        typer.echo(f"the roles are pgsched_{', pgsched_'.join(roles.ROLES)}")
    if before is None:
        return typer.echo(f"created schema pgsched, version {after}")
    return typer.echo(f"the schema is version {after}" + (" already" if before == after else f" (was {before})"))


def print_step(line: str) -> None:
    """Print a line about a step of a migration on stderr."""
    print(escape_controls(line), file=sys.stderr, flush=True)


def check(app: Apps = None, dsn: Dsn = None, json: Json = False) -> None:
    """Check settings, database and code. Starts nothing; one line per finding: ok, warn or fail.

    With --app it imports the app and checks its tasks and jobs, and what a worker would do with the jobs of the
    database. Without a database it checks only the code: for CI.

    Exit code: 0 if nothing failed (warnings do not count), else that of the first failure.

    \b
    Example:
      pgsched check --json
      pgsched check --app myproject.tasks:app
    """
    from pgsched.services import check as observe

    if app:
        from pgsched.services.code_check import check_with_apps

        found = check_with_apps(app, dsn)
    else:
        found = observe.check(dsn)
    code = observe.exit_code(found)
    print_findings(found, code, json)
    raise typer.Exit(code)


def print_findings(found: list[Finding], code: int, json: bool) -> None:
    """Print one line for each finding, or all findings as JSON with the exit code."""
    from dataclasses import asdict

    if json:
        return print_json({"exit_code": code, "findings": [asdict(finding) for finding in found]})
    for finding in found:
        colour = {"ok": "green", "warn": "yellow", "fail": "red"}[finding.level]
        typer.secho(f"{finding.level:5}", fg=colour, nl=False)
        print(f"{finding.name:18}  {wrap_for_terminal(escape_controls(finding.text), 25)}")
    return None


def psql(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]", help="Passed to psql.")] = None,
    dsn: Dsn = None,
) -> None:
    """Open psql on the database. `SELECT * FROM jobs` works there; tables of other schemas are named with theirs.

    Exit code: that of psql.

    \b
    Example:
      pgsched psql
      pgsched psql -c "INSERT INTO jobs (name, task) VALUES ('hello', 'demo.hello')"
    """
    from pgsched.db.psql import command

    place = find_database(dsn)
    if not place.embedded:
        line, environ = command(place.dsn, arguments or [])
        os.execve(line[0], line, environ)
    raise typer.Exit(embedded_psql(place.dsn, arguments or []))


def embedded_psql(dsn: str, arguments: list[str]) -> int:
    """Run psql as a child process and return its exit code.

    This process must stay, because it keeps the embedded server running.
    """
    import signal
    import subprocess

    from pgsched.db.embedded import server
    from pgsched.db.psql import command

    migrate_embedded(dsn)
    line, environ = command(dsn, arguments, server.bin_dir())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to psql: it cancels a statement
    try:
        return subprocess.run(line, env=environ, check=False, preexec_fn=default_interrupt).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def default_interrupt() -> None:
    """Restore the default action of SIGINT in the child process, before psql starts.

    The parent ignores SIGINT, and a child inherits that.
    """
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
