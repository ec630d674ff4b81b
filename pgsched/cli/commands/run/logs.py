"""`pgsched run logs`: print the output of a run, all at once or while it comes."""

from __future__ import annotations

import json as encoding
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_remark
from pgsched.cli.output.printing import print_json
from pgsched.control_characters import escape_controls
from pgsched.core.payload import json_value

Id = Annotated[int, typer.Argument(metavar="ID", help="The run's id, as `run list` shows it.")]
ATTEMPT = "Only this attempt. Default: all, one after the other."
RAW = "Leave control characters as they are; for a file, or output that you trust."


def logs(
    run_id: Id,
    attempt: Annotated[int | None, typer.Option(help=ATTEMPT, min=1, max=2**31 - 1)] = None,
    stream: Annotated[str | None, typer.Option(help="Only stdout, stderr or log.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help=RAW)] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show what a run printed. With --follow as it comes, until the run has ended.

    Commands, SQL notices, `run.log`, and what Python tasks print and log with capture=True. --json prints an array,
    with --follow one object a line.

    \b
    Example:
      pgsched run logs 4711 --follow
    """
    from pgsched.db.queries.runs import run_output
    from pgsched.services.runs.follow import looks, output

    with session(dsn) as conn:
        run = run_output.state(conn, run_id)
        if not follow:
            found = output(conn, run_id, attempt, stream)
            if json:
                return print_json([output_object(row) for row in found])
            printer = Printer(raw)
            printer.print(found)
            if printer.attempt is None:
                print_remark(explain_no_output(run, attempt, stream))
            return None
        printer = Printer(raw)
        for seen in looks(conn, run_id, attempt, stream, note=print_remark):
            print_lines(seen.rows) if json else printer.print(seen.rows)
    return None


def explain_no_output(run: dict[str, Any], attempt: int | None, stream: str | None) -> str:
    """Return a sentence that says why a run has no output to show."""
    from pgsched.core.lifecycle import ENDED_STATES

    asked = ("" if attempt is None else f"attempt {attempt} of ") + f"run {run['id']}"
    where, ended = "" if stream is None else f" to {stream}", run["state"] in ENDED_STATES
    if (attempt or 1) > run["attempt"]:
        return f"{asked} {'was never begun' if ended else 'has not begun yet'}"
    if run["kind"] == "http":
        return f"{asked} has no output: the answer of an http run is its result (pgsched run show {run['id']})"
    if run["kind"] == "task" and stream != "log":
        return f"{asked} has no output{where}: a task's is kept with capture=True, and what run.log() says"
    yet = "" if ended else " so far"
    return f"{asked} has printed nothing{where}{yet}, or its worker keeps no output (--log-bytes 0)"


class Printer:
    """A printer of output as the run printed it; notes on stderr say where an attempt begins.

    `attempt`: the attempt of the last printed piece; None before the first piece.
    """

    def __init__(self, raw: bool = False) -> None:
        self.attempt: int | None = None
        self._raw = raw
        self._in_line = False  # the last line has no line end yet

    def print(self, rows: Iterable[dict[str, Any]]) -> None:
        """Print pieces of output, in their order."""
        for row in rows:
            if row["attempt"] != self.attempt:
                self._begin(row["attempt"])
            text = row["chunk"] if self._raw else escape_output(row["chunk"])
            if row["stream"] == "cut" and self._in_line:
                sys.stdout.write("\n")
            sys.stdout.write(text)
            self._in_line = not text.endswith("\n")
        sys.stdout.flush()

    def _begin(self, attempt: int) -> None:
        if self._in_line:
            sys.stdout.write("\n")
        sys.stdout.flush()
        if attempt > 1 or self.attempt is not None:
            print_remark(f"--- attempt {attempt} ---")
        self.attempt = attempt


def escape_output(text: str) -> str:
    """Escape control characters for a terminal; line ends and tabs stay."""
    return escape_controls(text.replace("\r\n", "\n"), "\n\t")


def output_object(row: dict[str, Any]) -> dict[str, Any]:
    """Return a piece of output as an object for JSON."""
    return {name: row[name] for name in ("attempt", "seq", "at", "stream")} | {"text": row["chunk"]}


def print_lines(rows: Iterable[dict[str, Any]]) -> None:
    """Print one JSON object per line for each piece of output."""
    for row in rows:
        print(encoding.dumps(output_object(row), default=json_value), flush=True)
