"""The `pgsched` program: builds the command line, runs one command, and turns errors into exit codes.

Each command parses its arguments, calls one function and prints the result.

Invariant: an error is one line on stderr and an exit code. A traceback appears only with PGSCHED_LOG=debug. `--help`
imports nothing that speaks to a database: commands import heavy modules in their bodies.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from typing import Any

import typer

# Modules in the order of their commands in the help, each with the first words of its commands.
MODULES = {
    "commands.demo": ("demo",),
    "commands.worker": ("worker", "leader"),
    "commands.status": ("status",),
    "commands.health": ("health",),
    "top": ("top",),
    "commands.job.jobs": ("job",),
    "commands.job.preview": ("schedule", "job"),
    "commands.job.calendars": ("job",),
    "commands.run.runs": ("run",),
    "commands.backfill": ("backfill",),
    "commands.limits": ("limit",),
    "commands.queues": ("queue", "pause", "resume"),
    "commands.prune": ("prune", "retention"),
    "commands.alerts": ("alerts",),
    "commands.explain": ("explain",),
    "commands.database": ("migrate", "check", "psql"),
    "commands.doctor": ("doctor",),
    "commands.audit": ("audit",),
    "commands.chaos": ("chaos",),
    "commands.web": ("web",),
}
# Options that may hold a secret: password_hiding.py takes the secret off the command line.
MAY_HOLD_SECRETS = ("--dsn", "--sql-dsn", "--sql-login", "--alert-webhook", "--password-hash")
INTERRUPTED = 130
EXIT_CODES = """\b
Exit codes:
  0 fine   1 unhealthy, or refused   2 bad input   3 database unreachable
  4 database read-only   5 schema too old: pgsched migrate   6 schema too new
  7 a grant is missing   8 no such job or run   9 embedded server unavailable
  10 a worker over --max-memory has drained
  11 the unique key is taken (from Python)   12 a queue is full
  13 a database of another fleet
  70 a bug in pgsched   130 interrupted"""
EPILOG = f"""{EXIT_CODES}

\b
Database: --dsn, else PGSCHED_DSN, else DATABASE_URL, else libpq's PGHOST,
PGSERVICE or PGDATABASE, else the embedded PostgreSQL, which is started when
it is needed. PGSCHED_LOG=debug shows
tracebacks.

\b
Example:
  pgsched demo"""


def make_app(word: str | None = None) -> typer.Typer:
    """Build the command line: only the commands under the first word `word`, or all if it is unknown or None.

    Building all commands takes a quarter of the time of `pgsched status`.
    """
    app = typer.Typer(
        name="pgsched",
        help="Scheduled jobs and background work on PostgreSQL alone.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # rich is slow to import, and its boxes are useless in a pipe
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(print_version)
    for name in [name for name, words in MODULES.items() if word in words] or MODULES:
        importlib.import_module(f"{__name__}.{name}").register(app)
    add_common_parts(app)
    return app


def add_common_parts(app: typer.Typer) -> None:
    """Give all commands their common parts, in this group and in the groups below.

    - The help ends with the exit codes, as the help of the program does.
    - An option that takes one value is refused if it is given twice.
    """
    from pgsched.cli.once import OnceCommand

    for command in app.registered_commands:
        command.epilog = command.epilog or EXIT_CODES
        if command.name not in ("worker", "leader"):  # wrapper scripts add defaults: the last value counts
            command.cls = OnceCommand
    for group in app.registered_groups:
        if (inner := group.typer_instance) is not None:
            add_common_parts(inner)
            callback = inner.registered_callback
            if callback is not None and callback.invoke_without_command:  # also a command, such as `alerts`
                group.epilog = EXIT_CODES


def print_version(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Handle the options of the program itself: print the version for --version."""
    if version:
        import pgsched

        typer.echo(f"pgsched {pgsched.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the `pgsched` program and exit with its code."""
    if any(arg.startswith(MAY_HOLD_SECRETS) for arg in sys.argv):
        from pgsched.cli.password_hiding import hide_passwords

        hide_passwords()
    for stream in (sys.stdout, sys.stderr):  # a job's name may hold letters that the terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = silence_stdout()
    except OSError as error:
        silence_stdout()
        code = print_error(f"the output cannot be written: {error.strerror}", 1)
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        for text in args:
            text.encode()
    except UnicodeEncodeError:
        return print_error("an argument is not valid UTF-8", 2)
    try:
        code = make_app(args[0] if args else None)(args, prog_name="pgsched", standalone_mode=False)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        return print_error(str(end.code), 1)
    except typer.Abort as end:
        return INTERRUPTED if isinstance(end.__cause__, KeyboardInterrupt) else print_error("given up", 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return silence_stdout()
    except Exception as error:
        return report_usage_error(error) if hasattr(error, "format_message") else report_error(error)
    return code if isinstance(code, int) else 0


def report_usage_error(error: Any) -> int:
    """Print one line about wrong arguments and where to read the help; return the exit code.

    A group without a command prints its help instead. typer's own message is not used, because typer prints arguments
    unescaped.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        path = error.ctx.command_path if getattr(error, "ctx", None) else "pgsched"
        text = error.format_message().rstrip(".")
        if path == "pgsched" and text in ("No such option: --dsn", "No such option: --json"):
            option = text.split()[3]
            text = f"{option} goes after the command: pgsched status {option}{' DSN' if option == '--dsn' else ''}"
        print_error(f"{text}{' See:' if text.endswith('?') else '; see:'} {path} --help", int(error.exit_code))
    return int(error.exit_code)


def report_error(error: Exception) -> int:
    """Print one line for an error and return its exit code; PGSCHED_LOG=debug adds the traceback."""
    from pgsched.errors import BUG, PgschedError

    if "pgsched.db.connection.connect" in sys.modules:
        from pgsched.db.connection.connect import DatabaseError
        from pgsched.db.connection.failures import explain_error

        if isinstance(error, DatabaseError):
            error = explain_error(error)
    if os.environ.get("PGSCHED_LOG") == "debug":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, PgschedError):
        return print_error(str(error), error.exit_code)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
        silence_stdout()
        return print_error(f"the output cannot be written: {error.strerror}", 1)
    what = f"{type(error).__name__}: {error}"
    return print_error(f"{what} (this is a bug in pgsched; PGSCHED_LOG=debug shows where)", BUG)


def print_error(text: str, code: int) -> int:
    """Print an error on stderr as one line, with control characters escaped, and return `code`."""
    from pgsched.control_characters import escape_controls

    try:
        print(f"error: {escape_controls(' '.join(text.split()))}", file=sys.stderr)
    except BrokenPipeError:
        return silence_stdout()
    return code


def silence_stdout() -> int:
    """Send further output to /dev/null after the reader has gone (`pgsched run list | head`); return 1.

    Python flushes stdout at exit: the flush then finds an open file and prints no error.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
