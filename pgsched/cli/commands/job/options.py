"""Options of `pgsched job add` and `job update`; each sets the column of its name."""

from __future__ import annotations

from typing import Annotated

import typer

from pgsched.cli.completion import complete_jobs, complete_queues

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name.", autocompletion=complete_jobs)]
Like = Annotated[
    str | None,
    typer.Option(metavar="PRESET", help="Policies as another product's: cron, kubernetes, temporal, celery."),
]
Kind = Annotated[str | None, typer.Option(help="How the task is read: task (default), command, shell, sql, http.")]
Schedule = Annotated[str | None, typer.Option(help="Cron expression, '@every 90s', '@daily', ...")]
Zone = Annotated[str | None, typer.Option(help="IANA time zone of the schedule. Default: UTC.")]
Args = Annotated[str | None, typer.Option(help="JSON object or array; @FILE or - reads it from there.")]
QueueName = Annotated[str | None, typer.Option(help="Default: default.", autocompletion=complete_queues)]
RunAt = Annotated[str | None, typer.Option(help="Run once, then: 22:00, tomorrow 6:00, in 2 hours, ISO.")]
Overlap = Annotated[str | None, typer.Option(help="allow, skip (default), buffer_one, buffer_all, replace, terminate.")]
CatchUp = Annotated[str | None, typer.Option(help="latest (default), skip, earliest, all.")]
Attempts = Annotated[str | None, typer.Option(metavar="N", help="1-1000. Default: 3.")]
Timeout = Annotated[str | None, typer.Option(metavar="LENGTH", help="Longest time of one attempt: '90 seconds', '2h'.")]
Priority = Annotated[str | None, typer.Option(metavar="N", help="0-9, lower first. Default: 5.")]
Jitter = Annotated[str | None, typer.Option(metavar="LENGTH", help="Spread the starts over this long.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="COLUMN=VALUE", help="Any other column (repeatable); empty: its default."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="[OUTCOME=]TIME", help="Keep its ended runs so long: 7d, or dead=90d (repeatable)."),
]
Failures = Annotated[str | None, typer.Option(metavar="N", help="Alert after so many runs in a row that failed.")]
Lateness = Annotated[str | None, typer.Option(metavar="LENGTH", help="Alert when a slot starts later than this.")]
Longest = Annotated[str | None, typer.Option(metavar="LENGTH", help="Alert when an attempt takes longer than this.")]
Expect = Annotated[str | None, typer.Option(metavar="LENGTH", help="Alert when it has not succeeded for so long.")]
FinishBy = Annotated[
    str | None,
    typer.Option(metavar="LENGTH", help="Alert when a slot has not succeeded this long after its time: '4 hours'."),
]
PauseAfter = Annotated[str | None, typer.Option(metavar="N", help="Pause it after so many runs in a row that failed.")]
