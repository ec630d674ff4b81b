"""`pgsched prune` and `pgsched retention`: delete old runs now, and set how long things are kept."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.messages import print_error, print_note, print_remark
from pgsched.cli.output.printing import print_fields, print_json, print_table
from pgsched.core.input_values import parse_bounded_duration, parse_keep, retention_as_json
from pgsched.core.wording import describe_keep, describe_keep_of_all, format_age, format_short_duration
from pgsched.errors import InputError

Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="[OUTCOME=]TIME", help="7d, or dead=90d (repeatable); replaces what was set."),
]


def register(app: typer.Typer) -> None:
    """Add the command and the noun to the command line."""
    app.command("prune")(prune)
    noun = typer.Typer(
        help="How long things are kept: show, set.\n\n\b\nExample:\n  pgsched retention show",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    noun.command("show")(show)
    noun.command("set")(set_retention)
    app.add_typer(noun, name="retention")


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    archive: Annotated[
        str | None, typer.Option(metavar="FILE", help="Append each run that goes to this file, as a line of JSON.")
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Delete runs past their retention now. The leader does it by itself, once a minute.

    A run goes with its attempts and output, when its ending is counted for the charts and nothing waits for its result.

    \b
    Example:
      pgsched prune --dry-run
      pgsched prune --archive runs.jsonl
    """
    from pgsched.db.queries.leader import retention

    with session(dsn) as conn:
        if dry_run:
            return print_prunable(retention.count_expired(conn), json)
        from pgsched.services.pruning import prune_all

        done = prune_all(conn, archive)
    if done.behind_s is not None:
        print_note(f"what ended in the last {format_short_duration(done.behind_s)} is not counted yet and stays:"
                   " a transaction that writes runs is open")  # fmt: skip
    for run, why in done.refused.items():
        print_remark(f"run {run} stays, the database refuses to delete it: {why}")
    if done.gave_up:
        print_error("so many runs are refused that the others were not tried: mend what refuses them (a trigger or a"
                    " foreign key on pgsched.runs), then prune again", 1, "refused")  # fmt: skip
    if json:
        refused = [{"run": run, "error": why} for run, why in done.refused.items()]
        print_json({"deleted": done.deleted, "archive": archive, "not_counted_s": done.behind_s, "refused": refused,
                    "gave_up": done.gave_up})  # fmt: skip
    else:
        print(f"deleted {done.deleted} runs" + (f", each is a line of {archive}" if archive else ""))
    if done.refused:
        raise typer.Exit(1)
    return None


def print_prunable(found: list[dict[str, Any]], json: bool) -> None:
    """Print how many runs are past their retention, by queue and outcome."""
    total = sum(row["runs"] for row in found)
    if json:
        return print_json({"would_delete": total, "runs": found})
    lines = [[row["queue"], row["state"], row["runs"], row["oldest_at"]] for row in found]
    print_table(["QUEUE", "OUTCOME", "RUNS", "OLDEST"], lines)
    return print(f"{total} runs would go")


def show(dsn: Dsn = None, json: Json = False) -> None:
    """Show how long runs and figures are kept, and which queues and jobs say something else.

    \b
    Example:
      pgsched retention show
    """
    from pgsched.db.queries.leader import retention
    from pgsched.db.queries.reports.live import database_now

    with session(dsn) as conn:
        found = retention.settings(conn)
        now = database_now(conn)
    if json:
        return print_json(retention_as_json(found))
    print_fields(
        {
            "runs": describe_keep_of_all(found["keep"]),
            "archive": "into pgsched.archived_runs" if found["archive"] else "no",
            "figures by minute": format_short_duration(found["keep_minutes"]),
            "figures by hour": format_short_duration(found["keep_hours"]),
            "audit": format_short_duration(found["keep_audit"]),
            "counted until": format_age(found["counted_until"], now) if found["counted_until"] else "not yet",
        }
    )
    lines = [[what, one["name"], describe_keep(one["keep"])] for what in ("queue", "job") for one in found[f"{what}s"]]
    print() if lines else None
    return print_table(["OF", "NAME", "RUNS"], lines)


def set_retention(
    keep: Keep = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--no-archive", help="Put what goes into pgsched.archived_runs.")
    ] = None,
    keep_minutes: Annotated[str | None, typer.Option(metavar="TIME", help="Figures by minute. Default: 3d.")] = None,
    keep_hours: Annotated[str | None, typer.Option(metavar="TIME", help="Figures by hour. Default: 400d.")] = None,
    keep_audit: Annotated[str | None, typer.Option(metavar="TIME", help="Who changed what. Default: 400d.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Set how long everything is kept that no queue and no job says something else of.

    Of a queue: `pgsched queue set NAME --keep 1d`; of a job: `pgsched job update NAME --keep dead=90d`.

    \b
    Example:
      pgsched retention set --keep 7d --keep dead=90d --archive
    """
    from pgsched.services import settings

    values: dict[str, Any] = {"keep": parse_keep(keep), "archive": archive}
    values["keep_minutes"] = parse_bounded_duration("keep-minutes", keep_minutes, "1 hour", "10 years")
    values["keep_hours"] = parse_bounded_duration("keep-hours", keep_hours, "1 day", "100 years")
    values["keep_audit"] = parse_bounded_duration("keep-audit", keep_audit, "1 day", "1000 years")
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        raise InputError("retention set: say what: see `pgsched retention set --help`", "keep")
    with session(dsn) as conn:
        found = settings.change_retention(conn, given)
    if json:
        return print_json(retention_as_json(found))
    print(f"runs: {describe_keep_of_all(found['keep'])}" + ("; archived" if found["archive"] else ""))
    named = {"keep_minutes": "figures by minute", "keep_hours": "figures by hour", "keep_audit": "audit"}
    for column, words in named.items():
        if column in given:
            print(f"{words}: {format_short_duration(found[column])}")
    return None
