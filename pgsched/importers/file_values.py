"""The columns of imported jobs as a file of jobs has them, and what no file of jobs takes.

Invariant: each job that an import prints is read by `pgsched plan` without an error. One that it would refuse becomes
no job, with the reason that the reader of files gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from pgsched.core.jobs_file.model.loading import load
from pgsched.core.jobs_file.texts.document import Document, path_text
from pgsched.errors import InputError
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark

UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
LONGEST_SHOWN = 300  # characters of a reason


def file_values(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with texts in place of lengths of time and instants."""
    return {name: file_value(value) for name, value in columns.items()}


def file_value(value: Any) -> Any:
    """Return a column's value as a file has it."""
    if isinstance(value, timedelta):
        return length_text(value)
    return value.isoformat() if isinstance(value, date) else value


def length_text(value: timedelta) -> str:
    """Return a length of time as people write it, in one unit: `90 seconds`, `2 hours`, `1.5 seconds`."""
    microseconds = value // timedelta(microseconds=1)
    if microseconds % 1_000_000:
        if microseconds % 1000 == 0:
            return f"{microseconds // 1000}ms"
        return f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06}".rstrip("0") + " seconds"
    seconds = microseconds // 1_000_000
    size, unit = next((one for one in UNITS if seconds and seconds % one[0] == 0), UNITS[-1])
    count = seconds // size
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def omit_refused(imported: Imported) -> Imported:
    """Return what was imported, without the jobs that no file of jobs can have."""
    kept: list[ImportedJob] = []
    for job in imported.jobs:
        if (remark := refusal(job)) is None:
            kept.append(job)
        else:
            imported.omitted.append(Omitted(job.where, job.source[:LONGEST_SHOWN], remark))
    imported.jobs[:] = kept
    return imported


def refusal(job: ImportedJob) -> Remark | None:
    """Return why a file of jobs does not take a job; None if it does."""
    try:
        load(Document("", {"jobs": {job.name: file_values(job.columns)}}, {}))
    except InputError as error:
        text = str(error).removeprefix(path_text(("jobs", job.name))).lstrip(".: ")
        return Remark(Reason.REFUSED, text[:LONGEST_SHOWN])
    return None
