"""Write imported jobs as jobs.yaml, each remark as a comment above the line that it concerns.

Invariant: what is written is one jobs.yaml, whatever the source holds: no text of the source ends a comment or a value.
Each job is paused, or in mode shadow: applying the file starts nothing. A job that does not do exactly what the source
did has a comment that begins with NOT_EXACT.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pgsched.control_characters import escape_controls
from pgsched.core.jobs_file.texts.yaml_writer import entry_lines, escape_unprintable, flow_text, key_lines
from pgsched.core.units import format_count
from pgsched.importers.file_values import file_values
from pgsched.importers.imported import Imported, ImportedJob, Reason, Remark

NOT_EXACT = "NOT EXACT"
COMMENT_WIDTH = 110
MOST_OF_A_SOURCE = 300  # characters of the source's line that a comment repeats
# The order of the columns of a job; any other column stands behind them.
ORDER = (
    "description", "schedule", "run_at", "timezone", "starts_at", "ends_at", "max_runs", "jitter", "kind", "task",
    "args", "queue", "overlap", "retry_within", "misfire_after", "catch_up", "catch_up_window", "start_deadline",
    "max_attempts", "backoff", "backoff_base", "backoff_max", "backoff_jitter", "timeout", "kill_after",
    "success_codes", "dead_codes",
)  # fmt: skip
# Columns that move to `defaults` where all jobs have them, and most have the same value.
SHARED = (
    "timezone", "kind", "queue", "overlap", "retry_within", "misfire_after", "catch_up", "catch_up_window",
    "start_deadline", "max_attempts", "backoff", "backoff_base", "backoff_max", "backoff_jitter", "kill_after",
    "paused", "mode",
)  # fmt: skip


def write_jobs_file(
    imported: Imported,
    *,
    title: str,
    sites: Sequence[str] = ("",),
    mode: str | None = None,
    sections: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of jobs.yaml.

    `title`: a sentence that says what was read. `sites`: how the pages begin that the source has of a reason's pages.
    `mode`: `shadow`, or None for paused jobs. `sections`: what stands in the file beside jobs, such as `calendars`.
    """
    jobs = [(job, _with_mode(job, mode)) for job in imported.jobs]
    shared = _shared_columns([columns for _, columns in jobs])
    lines = [*_head(imported, title, tuple(sites))]
    if shared:
        lines.append("defaults:")
        lines.extend(line for name, value in shared.items() for line in entry_lines(name, value, 2))
    lines.append("jobs:" if jobs else "jobs: {}")
    for number, (job, columns) in enumerate(jobs):
        lines.extend([""] * (number > 0))
        lines.extend(_job_lines(job, _without(columns, shared)))
    for name, value in (sections or {}).items():
        lines.extend(["", *entry_lines(name, value, 0)])
    lines.extend(_omitted_lines(imported))
    return "\n".join(lines) + "\n"


def summary_lines(imported: Imported) -> list[str]:
    """Return the summary: how many jobs are exact, and how many jobs and lines each reason concerns."""
    exact = sum(job.exact for job in imported.jobs)
    omitted = len(imported.omitted)
    first = f"{format_count(len(imported.jobs), 'job')}: {exact} exact, {len(imported.jobs) - exact} not"
    if omitted:
        first += f"; {omitted} became no job"
    counts = imported.count_reasons().items()
    return [first, *(f"  {count:4}  {reason.name}: {reason.sentence}" for reason, count in counts)]


def _with_mode(job: ImportedJob, mode: str | None) -> dict[str, Any]:
    """Return the columns as the file has them, with what keeps the job from running."""
    columns = file_values(job.columns)
    return columns | ({"paused": True} if columns.get("paused") or mode is None else {"mode": mode})


def _without(columns: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns whose value is not that of the defaults, in the order of ORDER."""
    ordered = [name for name in ORDER if name in columns]
    names = [*ordered, *(name for name in columns if name not in ORDER)]
    return {name: columns[name] for name in names if name not in shared or shared[name] != columns[name]}


def _shared_columns(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns that all jobs have, each with the value that most of them have. A single job keeps its own."""
    found: dict[str, Any] = {}
    for name in SHARED if len(jobs) > 1 else ():
        if all(name in job for job in jobs):
            texts = Counter(flow_text(job[name]) for job in jobs)
            text, count = texts.most_common(1)[0]
            if count * 2 > len(jobs):
                found[name] = next(job[name] for job in jobs if flow_text(job[name]) == text)
    return found


def _head(imported: Imported, title: str, sites: tuple[str, ...]) -> Iterator[str]:
    yield from comment_lines(title)
    yield from comment_lines(summary_lines(imported)[0] + ".")
    for remark in imported.remarks:
        yield from comment_lines(_remark_text(remark), hang=2)
    used = {remark.reason for remark in imported.all_remarks()}
    for heading, informs in (("Differs:", False), ("For your information:", True)):
        reasons = [reason for reason in Reason if reason in used and reason.informs is informs]
        yield from ("#", f"# {heading}") if reasons else ()
        for reason in reasons:
            yield from comment_lines(f"  {reason.name}: {reason.sentence}", hang=4)
            yield from (f"#     {page}" for page in reason.pages if page.startswith(sites))


def _job_lines(job: ImportedJob, columns: Mapping[str, Any]) -> Iterator[str]:
    above = [remark for remark in job.remarks if remark.column not in columns]
    yield from comment_lines(_place(job.where, job.source), indent=2, hang=2)
    if not job.exact:
        reasons = dict.fromkeys(remark.reason.name for remark in job.remarks if not remark.reason.informs)
        yield from comment_lines(f"{NOT_EXACT}: {', '.join(reasons)}", indent=2, hang=2)
    for remark in above:
        yield from comment_lines(_remark_text(remark), indent=2, hang=2)
    *first, last = key_lines(job.name, 2)
    yield from (*first, last if columns else f"{last} {{}}")
    for name, value in columns.items():
        for remark in job.remarks:
            if remark.column == name:
                yield from comment_lines(_remark_text(remark), indent=4, hang=2)
        yield from entry_lines(name, value, 4)


def _omitted_lines(imported: Imported) -> Iterator[str]:
    if imported.omitted:
        yield ""
        yield "# What became no job:"
    for omitted in imported.omitted:
        yield from comment_lines(_place(omitted.where, omitted.source), hang=2)
        yield from comment_lines(f"  {_remark_text(omitted.remark)}", hang=4)


def _place(where: str, source: str) -> str:
    cut = source if len(source) <= MOST_OF_A_SOURCE else f"{source[:MOST_OF_A_SOURCE]}..."
    return f"{where}: {cut}" if cut else where


def _remark_text(remark: Remark) -> str:
    return f"{remark.reason.name}: {remark.text}"


def comment_lines(text: str, *, indent: int = 0, hang: int = 0) -> list[str]:
    """Return a text as lines of comment, wrapped; `hang`: by how much further lines are indented.

    Control characters are escaped, so the text of a source never ends the comment.
    """
    start = " " * indent + "# "
    safe = escape_unprintable(escape_controls(text))
    wrapped = textwrap.wrap(
        safe, COMMENT_WIDTH, initial_indent=start, subsequent_indent=start + " " * hang, break_on_hyphens=False,
        drop_whitespace=True,
    )  # fmt: skip
    return wrapped or [start.rstrip()]
