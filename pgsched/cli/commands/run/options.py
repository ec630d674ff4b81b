"""Options that choose runs by a filter, the same for `run list`, `run retry` and `run cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pgsched.cli.completion import complete_jobs, complete_queues, complete_tasks, complete_workers

if TYPE_CHECKING:
    from pgsched.db.queries.runs.run_filter import Filter

STATES = "waiting, scheduled, queued, running, succeeded, dead, cancelled, skipped or missed"
State = Annotated[str | None, typer.Option(help=f"{STATES}.")]
States = Annotated[list[str] | None, typer.Option("--state", help=f"{STATES} (repeatable).")]
Job = Annotated[str | None, typer.Option(help="Only runs of this job.", autocompletion=complete_jobs)]
Queue = Annotated[str | None, typer.Option(help="Only this queue.", autocompletion=complete_queues)]
Task = Annotated[str | None, typer.Option(help="Only this task.", autocompletion=complete_tasks)]
Kind = Annotated[str | None, typer.Option(help="Only this kind: task, command, shell, sql, http or item.")]
Error = Annotated[str | None, typer.Option(metavar="TEXT", help="Only with this text in the error or reason.")]
Tag = Annotated[str | None, typer.Option(help="Only with this tag.")]
Worker = Annotated[
    str | None, typer.Option(help="Only what ran on this worker, or host.", autocompletion=complete_workers)
]
Since = Annotated[str | None, typer.Option(help="Made since then: 2h, 22:00, yesterday, monday 6:00, ISO.")]
Until = Annotated[str | None, typer.Option(help="Made before then.")]
EndedSince = Annotated[str | None, typer.Option(help="Ended since then.")]
EndedUntil = Annotated[str | None, typer.Option(help="Ended before then.")]


def filter_from_options(
    state: str | None,
    job: str | None,
    queue: str | None,
    task: str | None,
    kind: str | None,
    error: str | None,
    tag: str | None,
    worker: str | None,
    times: tuple[str | None, str | None, str | None, str | None],
) -> Filter:
    """Return the filter that the options describe.

    `times`: --since, --until, --ended-since and --ended-until.
    Raises InputError for a value that an option does not take.
    """
    from pgsched.cli.times import read_moment
    from pgsched.services.runs.filters import FIELDS, filter_of

    given = dict(zip(FIELDS, (state, job, queue, task, kind, error, tag, worker, *times), strict=True))
    return filter_of(given.get, lambda name: name.replace("_", "-"), read_moment)
