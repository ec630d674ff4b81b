"""What the commands of `pgsched import` share: the group, options, and how a result is shown.

Invariant: stdout has the file and nothing else, so that `pgsched import ... > jobs.yaml` is one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pgsched.cli.messages import print_remark
from pgsched.cli.output.printing import print_json

if TYPE_CHECKING:
    from pgsched.importers.imported import Imported, Remark

HELP = """Jobs of other schedulers, as a file of jobs that `pgsched apply` takes.

\b
Example:
  pgsched import pg_cron > jobs.yaml"""
Shadow = Annotated[
    bool, typer.Option("--shadow", help="Jobs decide their slots and run nothing: mode shadow. Default: paused.")
]
Zone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="The zone of the source, if it does not say so itself."),
]
SourceDsn = Annotated[str | None, typer.Option("--dsn", metavar="DSN", help="The database that has the table.")]


def import_group(app: typer.Typer) -> typer.Typer:
    """Return the group `import` of the command line; make it if there is none yet."""
    for group in app.registered_groups:
        if group.name == "import" and group.typer_instance is not None:
            return group.typer_instance
    made = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(made, name="import")
    return made


def print_imported(found: Imported, *, title: str, shadow: bool, json: bool) -> None:
    """Print the file on stdout and the summary on stderr; with `json`, the file and all remarks as JSON."""
    from pgsched.importers.jobs_text import summary_lines, write_jobs_file

    text = write_jobs_file(found, title=title, mode="shadow" if shadow else None)
    if not json:
        sys.stdout.write(text)
        for line in summary_lines(found):
            print_remark(line)
        return
    print_json(
        {
            "file": text,
            "jobs": [
                {
                    "name": job.name,
                    "where": job.where,
                    "exact": job.exact,
                    "remarks": list(map(remark_json, job.remarks)),
                }
                for job in found.jobs
            ],
            "omitted": [{"where": one.where, "remark": remark_json(one.remark)} for one in found.omitted],
            "remarks": list(map(remark_json, found.remarks)),
        }
    )


def remark_json(remark: Remark) -> dict[str, object]:
    """Return a remark as JSON has it."""
    return {
        "reason": remark.reason.name,
        "text": remark.text,
        "column": remark.column,
        "informs": remark.reason.informs,
    }
