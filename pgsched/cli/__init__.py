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
import typer.main

from pgsched.cli.messages import choose_format, code_of, print_error, silence_stdout
from pgsched.core.text import did_you_mean

# Modules in the order of their commands in the help, each with the first words of its commands.
MODULES = {
    "commands.demo": ("demo",),
    "commands.worker": ("worker", "leader"),
    "commands.workers": ("worker",),
    "commands.tasks": ("task",),
    "commands.status": ("status",),
    "commands.health": ("health",),
    "commands.report": ("report",),
    "top": ("top",),
    "commands.job.jobs": ("job",),
    "commands.job.preview": ("job",),
    "commands.job.calendars": ("job",),
    "commands.job.shared_calendars": ("calendar",),
    "commands.jobs_file.plan": ("plan",),
    "commands.jobs_file.apply": ("apply",),
    "commands.jobs_file.export": ("export",),
    "commands.importing.files": ("import",),
    "commands.importing.pg_cron": ("import",),
    "commands.importing.celery": ("import",),
    "commands.importing.apscheduler": ("import",),
    "commands.job.shadow": ("shadow",),
    "commands.enqueue": ("enqueue",),
    "commands.run.runs": ("run",),
    "commands.backfill": ("backfill",),
    "commands.limits": ("limit",),
    "commands.queues": ("queue", "pause", "resume"),
    "commands.coordination.locks": ("lock",),
    "commands.coordination.lock_run": ("lock",),
    "commands.coordination.elections": ("election",),
    "commands.coordination.keys": ("kv",),
    "commands.coordination.key_watch": ("kv",),
    "commands.prune": ("prune", "retention"),
    "commands.alerts": ("alerts",),
    "commands.explain": ("explain",),
    "commands.database": ("migrate", "check", "psql"),
    "commands.doctor": ("doctor",),
    "commands.audit": ("audit",),
    "commands.chaos": ("chaos",),
    "commands.web": ("web",),
}
# Commands and options that are gone, with the command to use instead.
REMOVED = {
    ("queue", "pause"): "pgsched pause --queue NAME",
    ("queue", "resume"): "pgsched resume --queue NAME",
    ("schedule",): "pgsched job preview --schedule EXPR",
    ("status", "--watch"): "pgsched top",
}
# Options that may hold a secret: password_hiding.py takes the secret off the command line.
MAY_HOLD_SECRETS = ("--dsn", "--from", "--sql-dsn", "--sql-login", "--alert-webhook", "--alert-apprise",
                    "--password-hash")  # fmt: skip
INTERRUPTED = 130
HELP = {"-h", "--help"}
EXIT_CODES = """\b
Exit codes:
  0 fine   1 unhealthy, or refused
  2 bad input, or a difference (apply --check, shadow report)
  3 database unreachable
  4 database read-only   5 schema too old: pgsched migrate   6 schema too new
  7 a grant is missing   8 no such job, run, lock or key
  9 embedded server unavailable   10 a worker over --max-memory has drained
  11 the unique key is taken (from Python)   12 a queue is full
  13 a database of another fleet   14 a lock was lost   70 a bug in pgsched
  75 a lock was not to be had in time (lock run)
  126 a command cannot be started (lock run)
  127 there is no such command (lock run)   130 interrupted"""
EPILOG = f"""{EXIT_CODES}

\b
Database: --dsn, else PGSCHED_DSN, else DATABASE_URL, else libpq's PGHOST,
PGSERVICE or PGDATABASE, else the embedded PostgreSQL, which is started when
it is needed. Settings file: pgsched.toml. PGSCHED_LOG=debug shows
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
        if command.name != "leader":  # wrapper scripts add defaults: the last value counts, as of `worker`
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
    hide_secrets()
    sys.exit(run_as_program(sys.argv[1:]))


def hide_secrets(dsn_variable: str = "PGSCHED_DSN") -> None:
    """Take secrets off the command line of this process. `dsn_variable`: where the value of `--dsn` goes."""
    if any(arg.startswith(MAY_HOLD_SECRETS) for arg in sys.argv):
        from pgsched.cli.password_hiding import hide_passwords

        hide_passwords(dsn_variable)


def run_as_program(args: list[str]) -> int:
    """Run one command line as all that this process does, and return its exit code: the output is written, or given up.

    A name may hold letters that the terminal's encoding lacks, and a reader may close the pipe.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(args)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = silence_stdout()
    except OSError as error:
        silence_stdout()
        code = print_error(f"the output cannot be written: {error.strerror}", 1, "output")
    return code


def run(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    choose_format(args)
    if (problem := find_bad_text(args) or find_removed(args)) is not None:
        return print_error(problem, 2, "usage")
    if os.environ.get("_PGSCHED_COMPLETE") == "complete_bash":
        from pgsched.cli.completion import join_words_of_bash

        join_words_of_bash()
    try:
        app = make_app(args[0] if args else None)
        code = app(args, prog_name="pgsched", standalone_mode=False, default_map=file_defaults(app, args))
    except SystemExit as end:
        code = end.code if end.code is None or isinstance(end.code, int) else print_error(str(end.code), 1, "refused")
    except typer.Abort as end:
        interrupted = isinstance(end.__cause__, KeyboardInterrupt)
        code = INTERRUPTED if interrupted else print_error("given up", 1, "refused")
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = silence_stdout()
    except Exception as error:
        code = report_usage_error(error) if hasattr(error, "format_message") else report_error(error)
    return code if isinstance(code, int) else 0


def find_bad_text(args: list[str]) -> str | None:
    """Return the problem with arguments that are not text; None if all are."""
    try:
        for text in args:
            text.encode()
    except UnicodeEncodeError:
        return "an argument is not valid UTF-8"
    return None


def find_removed(args: list[str]) -> str | None:
    """Return what to type instead of a command or option that earlier versions had; None for any other command line."""
    for words, instead in REMOVED.items():
        option = words[-1] if words[-1].startswith("-") else None
        command = words[:-1] if option else words
        if tuple(args[: len(command)]) == command and (option is None or option in args):
            return f"there is no `pgsched {' '.join(words)}` any more: use `{instead}`"
    return None


def file_defaults(app: typer.Typer, args: list[str]) -> dict[str, Any] | None:
    """Return the options that the settings file gives, None without one. Raises InputError."""
    from pgsched.cli.config_file import apply_file, find_file

    if not args or args[0].startswith("-") or HELP & {*args} or (path := find_file()) is None:
        return None
    words = sorted({word for words in MODULES.values() for word in words})
    return apply_file(path, typer.main.get_command(app), words)


def report_usage_error(error: Any) -> int:
    """Print one line about wrong arguments and where to read the help; return the exit code.

    A group without a command prints its help instead. typer's own message is not used, because typer prints arguments
    unescaped.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "pgsched"
        text = error.format_message().rstrip(".")
        wrong = getattr(error, "option_name", None) or getattr(getattr(error, "param", None), "name", None)
        if path == "pgsched" and text in ("No such option: --dsn", "No such option: --json"):
            text = f"{wrong} goes after the command: pgsched status {wrong}{' DSN' if wrong == '--dsn' else ''}"
        elif type(error).__name__ == "NoSuchOption" and context:
            known = [name for param in context.command.get_params(context) for name in param.opts]
            text = f"No such option: {wrong}{did_you_mean(str(wrong), known)}"
        text = f"{text}{' See:' if text.endswith('?') else '; see:'} {path} --help"
        print_error(text, int(error.exit_code), "usage", wrong and wrong.lstrip("-"))
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
        return print_error(str(error), error.exit_code, code_of(error), getattr(error, "field", None))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
        silence_stdout()
        return print_error(f"the output cannot be written: {error.strerror}", 1, "output")
    what = f"{type(error).__name__}: {error}"
    return print_error(f"{what} (this is a bug in pgsched; PGSCHED_LOG=debug shows where)", BUG, "bug")
