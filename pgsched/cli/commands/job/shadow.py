"""`pgsched shadow report`: where jobs in mode shadow differ from the scheduler that still runs their work."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.completion import complete_jobs
from pgsched.cli.output.printing import format_cell, print_json, print_table
from pgsched.cli.times import chosen_zone, read_instant
from pgsched.core.input_values import parse_option_duration
from pgsched.core.units import format_count
from pgsched.core.wording import format_short_duration, shorten
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.core.shadow.comparing import Comparison
    from pgsched.services.jobs.shadow import Log, ShadowReport

SHOWN = 5  # instants of a job, and at most four times as many commands
LARGE = 10_000_000  # bytes from which on a progress bar is shown
GZIP = b"\x1f\x8b"


def register(app: typer.Typer) -> None:
    """Add the noun and its verb to the command line."""
    noun = typer.Typer(
        help="Compare jobs in mode shadow with another scheduler's log.", no_args_is_help=True, rich_markup_mode=None
    )
    noun.callback()(lambda: None)  # one verb alone would be no verb
    noun.command("report")(report)
    app.add_typer(noun, name="shadow")


def report(
    log: Annotated[
        list[str], typer.Option("--log", metavar="FILE", help="The other scheduler's log, also .gz; - is stdin.")
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="syslog (also of journalctl), csv, kubernetes. Default: by its content."
        ),
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only from this time on: yesterday, monday, ISO.")] = None,
    until: Annotated[str | None, typer.Option(help="Only until this time.")] = None,
    tolerance: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="A start may be this late and still belong to its slot. The job's jitter is added."
        ),
    ] = "1m",
    job: Annotated[
        list[str] | None,
        typer.Option(
            "--job", help="Compare these jobs (repeatable). Default: all in mode shadow.", autocompletion=complete_jobs
        ),
    ] = None,
    mapping: Annotated[
        str | None, typer.Option("--map", metavar="FILE", help="A CSV: a logged text (text* its beginning), a job.")
    ] = None,
    by_schedule: Annotated[
        bool,
        typer.Option(
            "--by-schedule",
            help="Compare the log with what the schedules give, also for time before the jobs were made.",
        ),
    ] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Say where the slots of jobs in mode shadow differ from what another scheduler has started.

    For each job: slots with a start in the log, slots only here, starts only there, and how late those starts were.
    A start belongs to a job by its command or name. Wall clocks of the log are in the zone of --tz.
    Exit code: 0 no difference; 2 a difference, no job that could be compared, or bad input.

    \b
    Example:
      pgsched shadow report --log /var/log/cron.log --tz Europe/Berlin
      kubectl get jobs -A -o json | pgsched shadow report --log -
    """
    from pgsched.core.shadow.log_lines import check_format
    from pgsched.services.jobs.shadow import Question, read_report

    question = Question(
        read_instant("since", since), read_instant("until", until), parse_option_duration("tolerance", tolerance),
        job or None, by_schedule, chosen_zone(),
    )  # fmt: skip
    refuse_empty_time(question.since, question.until)
    check_format(form)
    lines = None if mapping is None else read_lines(mapping)
    with opened(log, form) as logs, session(dsn) as conn:
        try:
            found = read_report(conn, logs, question, lines)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"log: cannot be read: {error}", "log") from None
    print_json(found.to_dict()) if json else print_report(found)
    raise typer.Exit(2 if found.differ or not found.compared else 0)


def refuse_empty_time(since: datetime | None, until: datetime | None) -> None:
    """Raise InputError where the end is not behind the beginning."""
    if since is not None and until is not None and since >= until:
        raise InputError("since: is not before the end of the report", "since")


def read_lines(path: str) -> list[str]:
    """Return the lines of a small text file. Raises InputError."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"map: cannot read {path}: {error}", "map") from None


@contextmanager
def opened(paths: list[str], form: str | None) -> Iterator[list[Log]]:
    """Open the logs, unpacked; on a terminal, show how much of large ones is read. Raises InputError."""
    from pgsched.services.jobs.shadow import Log

    with ExitStack() as stack:
        files: list[tuple[str, BinaryIO, int]] = []
        for path in paths:
            try:
                file = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
                files.append((path, cast(BinaryIO, file), 0 if path == "-" else Path(path).stat().st_size))
            except OSError as error:
                raise InputError(f"log: cannot read {path}: {error.strerror}", "log") from None
        watched = watch_reading(stack, files) if sys.stderr.isatty() else [file for _, file, _ in files]
        yield [Log(path, unpacked(file, path), form) for (path, *_), file in zip(files, watched, strict=True)]


def unpacked(file: Any, path: str) -> Any:
    """Return the file, unpacked if it is one of gzip: by its name, or by its first bytes where these can be seen."""
    begins = file.peek(2)[:2] if hasattr(file, "peek") else b""
    return gzip.GzipFile(fileobj=file) if begins == GZIP or path.endswith(".gz") else file


class WatchedFile:
    """A file that tells how much of it was read."""

    def __init__(self, file: BinaryIO, tell: Any) -> None:
        self._file = file
        self._tell = tell

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        piece = self._file.read(size)
        self._tell(len(piece))
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def watch_reading(stack: ExitStack, files: list[tuple[str, BinaryIO, int]]) -> list[Any]:
    """Return the files, with a progress bar on stderr where they are large together."""
    total = sum(size for *_, size in files)
    if total < LARGE:
        return [file for _, file, _ in files]
    from rich.console import Console
    from rich.progress import Progress

    progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
    task = progress.add_task("reading", total=total)
    return [WatchedFile(file, lambda n: progress.advance(task, n)) for _, file, _ in files]


def print_report(found: ShadowReport) -> None:
    """Print the figures of each job, then the differences, then commands that are no job's."""
    print(f"the log has {found.starts:,} starts, from {format_cell(found.begin)} to {format_cell(found.end)}\n")
    lines = [
        [" + ".join(one.jobs), one.matched, one.only_here, one.only_there, one.decided_late,
         format_short_duration(one.lateness_p50_s), format_short_duration(one.lateness_max_s)]
        for one in found.jobs
    ]  # fmt: skip
    figures = ["MATCHED", "ONLY HERE", "ONLY THERE", "DECIDED LATE", "P50", "MAX"]
    print_table(["JOB", *figures], lines, whole=figures)
    differing = [one for one in found.jobs if one.differs]
    if differing:
        print()
        print_table(["JOB", "DIFFERENCE"], [line for one in differing for line in describe_difference(one)], wrap=True)
    if found.unmatched:
        print()
        others = [[one.count, shorten(one.text, 200) + (f" (is it {one.meant}?)" if one.meant else "")]
                  for one in found.unmatched[: 4 * SHOWN]]  # fmt: skip
        print_table(["STARTS", "NO JOB'S COMMAND"], others, wrap=True)
    hidden = len(found.unmatched) - 4 * SHOWN
    if hidden > 0 or found.more_unmatched:
        text = f"and {hidden + found.more_unmatched:,} more"
        print(text if found.more_unmatched else f"{text}: --json has them")
    unknown = len(found.jobs) - found.compared
    if not found.compared:
        print("\nnothing was compared: no slot of these jobs, and no start, lies in the time that both sides know")
        print("--by-schedule compares a log that is older than the jobs")
        return
    print(f"\n{len(differing)} of {len(found.jobs)} jobs differ" if differing else "\nno difference")
    if unknown:
        print(f"{format_count(unknown, 'job')} not compared: neither slot nor start in the time that both know")


def describe_difference(one: Comparison) -> Iterator[list[str]]:
    """Yield a line for the slots only here, and one for the starts only there."""
    for where, count, instants in (("here", one.only_here, one.here), ("there", one.only_there, one.there)):
        if count:
            more = f" and {count - SHOWN:,} more" if count > SHOWN else ""
            yield [" + ".join(one.jobs), f"only {where}: {', '.join(map(format_cell, instants[:SHOWN]))}{more}"]
