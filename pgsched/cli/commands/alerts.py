"""`pgsched alerts`: list open incidents, and send a test alert through the sinks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pgsched.cli.commands.worker import Apprise, Command, Webhook, alert_settings
from pgsched.cli.common import Dsn, Json, session
from pgsched.cli.once import ViewGroup
from pgsched.cli.output.printing import print_fields, print_json, print_table
from pgsched.core.input_values import refuse_time_of_day
from pgsched.core.wording import format_age

DEFAULTS = (
    "alert_after_failures", "max_lateness", "max_duration", "expect_every", "finish_by", "alert_to", "dead_runs",
    "dead_runs_within",
)  # fmt: skip
FAILURES = "Alert when so many runs in a row end dead."
LATENESS = "Alert when a slot starts later than this."
DURATION = "Alert when an attempt takes longer."
SILENCE = "Alert when no run has succeeded for so long."
UNFINISHED = "Alert when a slot has not succeeded so long after its time."
SINKS = "Send alerts to these named sinks: names, with commas; {}: to none of them. Default: all."


def register(app: typer.Typer) -> None:
    """Add the command and its verb to the command line."""
    noun = typer.Typer(cls=ViewGroup, rich_markup_mode=None)
    noun.callback(invoke_without_command=True)(alerts)
    noun.command("test")(test)
    noun.command("defaults")(defaults)
    app.add_typer(noun, name="alerts", help=alerts.__doc__)


def alerts(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=10_000)] = 100,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List the incidents that are open; exit code 1 if there are any.

    \b
    Example:
      pgsched alerts
      pgsched alerts --all --json
    """
    if context.invoked_subcommand is not None:
        return
    from pgsched.db.queries.leader.alerts import list_alerts

    with session(dsn) as conn:
        found = list_alerts(conn, everything=everything, n=limit)
    if json:
        print_json(found)
    else:
        lines = [
            [
                one["id"],
                format_age(one["opened_at"], one["now"]),
                one["job"] or "-",
                one["kind"],
                alert_state(one),
                describe_alert(one),
            ]
            for one in found
        ]
        print_table(("ID", "SINCE", "JOB", "KIND", "STATE", "WHAT"), lines, "no alerts", wrap=True)
    if any(one["closed_at"] is None for one in found):
        raise typer.Exit(1)


def alert_state(one: dict[str, Any]) -> str:
    """Return whether an incident is open or over, and the first sink that did not get it."""
    deliveries = [delivery for delivery in one["told"] if delivery["error"] and not delivery["delivered_at"]]
    failing = [delivery["sink"].split()[0] for delivery in deliveries]
    return ("open" if one["closed_at"] is None else "over") + (f", {failing[0]} not delivered" if failing else "")


def describe_alert(one: dict[str, Any]) -> str:
    """Return what happened, and the recovery if there was one."""
    return f"{one['details']} -- {one['recovery']}" if one["recovery"] else str(one["details"])


def test(
    context: typer.Context,
    alert_webhook: Webhook = None,
    alert_command: Command = None,
    alert_apprise: Apprise = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Send a test alert and its end to the sinks given here, and to no others; without any, to those of the leader.

    \b
    Example:
      pgsched alerts test --alert-webhook https://hooks.example/pgsched
    """
    from pgsched.services.alerts import send_test_alert

    settings = alert_settings(
        alert_webhook if is_on_command_line(context, "alert_webhook") else None,
        alert_command if is_on_command_line(context, "alert_command") else None,
        alert_apprise if is_on_command_line(context, "alert_apprise") else None,
        alone=True,
    )
    with session(dsn) as conn:
        deliveries = send_test_alert(conn, settings)
    if json:
        print_json({"told": deliveries})
    else:
        lines = [
            [one["sink"], one["event"], one["error"] or ("delivered" if one["delivered_at"] else "not yet")]
            for one in deliveries
        ]
        print_table(("SINK", "EVENT", "OUTCOME"), lines, "no sink got it: is a leader running?", wrap=True)
    if not deliveries or any(one["delivered_at"] is None for one in deliveries):
        raise typer.Exit(1)


def is_on_command_line(context: typer.Context, name: str) -> bool:
    """Check whether an option stands on the command line, and not only in the environment or a settings file."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def defaults(
    alert_after_failures: Annotated[str | None, typer.Option(metavar="N", help=FAILURES)] = None,
    max_lateness: Annotated[str | None, typer.Option(metavar="LENGTH", help=LATENESS)] = None,
    max_duration: Annotated[str | None, typer.Option(metavar="LENGTH", help=DURATION)] = None,
    expect_every: Annotated[str | None, typer.Option(metavar="LENGTH", help=SILENCE)] = None,
    finish_by: Annotated[str | None, typer.Option(metavar="LENGTH", help=UNFINISHED)] = None,
    alert_to: Annotated[str | None, typer.Option(metavar="NAMES", help=SINKS)] = None,
    dead_runs: Annotated[
        str | None, typer.Option(metavar="N", help="Alert while so many runs without a job ended dead.")
    ] = None,
    dead_runs_within: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="Count the dead runs of this last time. Default: 1 hour.")
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show or set what is watched where a job does not say it itself. An empty value takes one out.

    \b
    Example:
      pgsched alerts defaults
      pgsched alerts defaults --alert-after-failures 3 --finish-by '6 hours' --dead-runs 20
      pgsched alerts defaults --finish-by ''
    """
    from pgsched.services import alerts as services

    given = locals()
    found = {name: given[name] for name in DEFAULTS if given[name] is not None}
    values: dict[str, Any] = {name: text.strip() or None for name, text in found.items()}
    refuse_time_of_day("finish_by", finish_by)
    if names := values.get("alert_to"):
        values["alert_to"] = [] if names == "{}" else [name.strip() for name in names.split(",")]
    with session(dsn) as conn:
        shown = services.change_defaults(conn, values) if values else services.defaults(conn)
    print_json(shown) if json else print_fields(shown)
