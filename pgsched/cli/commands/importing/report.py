"""Print what was imported: the file on stdout, the summary on stderr, or all of it as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgsched.cli.messages import print_note, print_remark
from pgsched.cli.output.printing import print_json
from pgsched.config import IMPORT_DSN
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.importers.imported import Imported, Remark

STARTS = ("paused", "shadow")
START = "paused: nothing happens until you resume them; shadow: their slots are recorded and nothing runs."
Start = Annotated[str, typer.Option("--start", metavar="paused|shadow", help=START)]
Source = Annotated[
    str | None,
    typer.Option("--from", metavar="DSN", envvar=IMPORT_DSN, help="The database of the source."),
]
Timezone = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="The zone of the source. Default: this machine's.")
]


def find_noun(app: typer.Typer) -> typer.Typer:
    """Return the noun `import`; add it if no module has yet."""
    for group in app.registered_groups:
        if group.name == "import" and group.typer_instance is not None:
            return group.typer_instance
    noun = typer.Typer(
        help="Jobs of other schedulers, printed as jobs.yaml. Nothing is changed.", no_args_is_help=True,
        rich_markup_mode=None,
    )  # fmt: skip
    app.add_typer(noun, name="import")
    return noun


def check_start(start: str) -> str | None:
    """Return the mode that jobs get, None for paused ones. Raises InputError."""
    if start not in STARTS:
        raise InputError(f'start: "{start}" is not one of {", ".join(STARTS)}{did_you_mean(start, STARTS)}', "start")
    return None if start == "paused" else start


def print_imported(
    imported: Imported, *, title: str, sites: Sequence[str], mode: str | None, json: bool, sections: Any = None
) -> None:
    """Print the jobs: as jobs.yaml with the summary on stderr, or as one JSON document.

    `title`, `sites`, `sections`: as of write_jobs_file.
    """
    from pgsched.core.jobs_file.texts.document import MOST_BYTES
    from pgsched.importers.jobs_text import summary_lines, write_jobs_file

    if json:
        print_json(imported_document(imported))
        return
    text = write_jobs_file(imported, title=title, sites=sites, mode=mode, sections=sections)
    print(text, end="")
    if (size := len(text.encode())) > MOST_BYTES:
        print_note(f"the file has {size:,} bytes, and pgsched plan reads {MOST_BYTES:,}: import it in parts")
    for line in summary_lines(imported):
        print_remark(line)


def imported_document(imported: Imported) -> dict[str, Any]:
    """Return what was imported as JSON has it."""
    from pgsched.importers.file_values import file_values

    return {
        "jobs": [
            {"name": job.name, "exact": job.exact, "where": job.where, "source": job.source,
             "columns": file_values(job.columns), "comments": [remark_document(one) for one in job.remarks]}
            for job in imported.jobs
        ],
        "omitted": [
            {"where": one.where, "source": one.source, "comments": [remark_document(one.remark)]}
            for one in imported.omitted
        ],
        "comments": [remark_document(one) for one in imported.remarks],
    }  # fmt: skip


def remark_document(remark: Remark) -> dict[str, Any]:
    """Return a remark as JSON has it."""
    reason = remark.reason
    return {"reason": reason.name.lower(), "text": remark.text, "column": remark.column, "informs": reason.informs}
