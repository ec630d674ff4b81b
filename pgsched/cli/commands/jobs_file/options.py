"""Arguments that the commands for a file of jobs share, and what they read with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgsched.cli.completion import complete_owners
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.core.jobs_file.model.entries import JobsFile

File = Annotated[str, typer.Argument(metavar="FILE", help="jobs.yaml or jobs.toml; - reads standard input.")]
Format = Annotated[str | None, typer.Option("--format", metavar="yaml|toml", help="Default: by the end of the name.")]
Owner = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The name of the file's owner. Default: the file's own `owner`, else default.",
        autocompletion=complete_owners,
    ),
]
Prune = Annotated[bool, typer.Option("--prune", help="Delete what the file declared before and does not any more.")]
Adopt = Annotated[bool, typer.Option("--adopt", help="Take over what exists already, also from another owner's file.")]


def read_jobs_file(path: str, file_format: str | None) -> JobsFile:
    """Return the model of a file, of standard input for `-`. Raises InputError."""
    from pgsched.core.jobs_file.texts.document import MOST_BYTES
    from pgsched.services.jobs_file.planning import read_file

    try:
        if path == "-":
            return read_file("-", sys.stdin.buffer.read(MOST_BYTES + 1), file_format)
        with Path(path).open("rb") as file:
            return read_file(path, file.read(MOST_BYTES + 1), file_format)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", "file") from None


@contextmanager
def progress_bar(json: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows how far the work is: on stderr, if that is a terminal."""
    if json or not sys.stderr.isatty():
        yield lambda _step, _done, _of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:24}"), BarColumn(30), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=1)
        yield lambda step, done, of: progress.update(bar, description=step, completed=done, total=max(of, 1))
