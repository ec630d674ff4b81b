"""`pgsched import crontab`, `systemd` and `kubernetes`: jobs from text files."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from pgsched.cli.commands.importing.report import Start, Timezone, check_start, find_noun, print_imported
from pgsched.cli.common import Json

CRON_SITES = ("https://manpages.debian.org", "https://man7.org", "https://man.openbsd.org")
SYSTEMD_SITES = ("https://www.freedesktop.org",)
KUBERNETES_SITES = ("https://kubernetes.io", "https://pkg.go.dev")
MOST_INPUT = 17 * 1024 * 1024  # bytes of standard input; more is refused

HOME = "Directory in which the commands start. Default: the user's home."

Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help="The queue of the jobs; {user} in it is the user. Default: {user}."),
]


def register(app: typer.Typer) -> None:
    """Add the verbs to `import`."""
    noun = find_noun(app)
    for verb in (crontab, systemd, kubernetes):
        noun.command()(verb)


def crontab(
    source: Annotated[str, typer.Argument(metavar="FILE|-|DIRECTORY|USER", help="As /etc/cron.d, or a user's.")],
    start: Start = "paused",
    queue: Queue = None,
    timezone: Timezone = None,
    user_column: Annotated[
        bool | None,
        typer.Option(
            "--user-column/--no-user-column", help="A user stands before each command. Default: by the place."
        ),
    ] = None,
    home: Annotated[str | None, typer.Option("--home", metavar="DIR", help=HOME)] = None,
    json: Json = False,
) -> None:
    """Print the jobs of crontabs as jobs.yaml. Nothing is run or changed.

    A crontab of the system (/etc/crontab, /etc/cron.d) has a user before each command: the job gets a queue of that
    name, which a worker of that user serves.

    \b
    Example:
      pgsched import crontab /etc/cron.d --start shadow > jobs.yaml
      crontab -l | pgsched import crontab - > jobs.yaml
    """
    from pgsched.services.importing.crontabs import CrontabSource, read_crontabs
    from pgsched.services.importing.machine import find_timezone

    chosen = check_start(start)
    zone, place = find_timezone(timezone)
    wanted = CrontabSource(source, zone, datetime.now(UTC), queue, user_column, home)
    imported = read_crontabs(wanted, read_input(source))
    title = (
        f"Read from {'standard input' if source == '-' else source} by pgsched import crontab, {say_zone(zone, place)}."
    )
    print_imported(imported, title=title, sites=CRON_SITES, mode=chosen, json=json)


def systemd(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Directories of units, or timers.")],
    start: Start = "paused",
    queue: Queue = None,
    timezone: Timezone = None,
    start_units: Annotated[
        bool, typer.Option("--start-units", help="Each service stays a unit: the job starts it by systemctl.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the jobs of timers and their services as jobs.yaml. Nothing is run or changed.

    A service whose settings a command cannot have stays a unit. Its job starts it by systemctl on its machine.

    \b
    Example:
      pgsched import systemd /etc/systemd/system /usr/lib/systemd/system > jobs.yaml
      pgsched import systemd backup@home.timer --start-units
    """
    from pgsched.importers.systemd.timers import TimerOptions
    from pgsched.services.importing.machine import find_timezone
    from pgsched.services.importing.units import read_timers

    chosen = check_start(start)
    zone, place = find_timezone(timezone)
    imported = read_timers(paths, TimerOptions(zone, datetime.now(UTC), queue, start_units))
    title = f"Read from {', '.join(paths)} by pgsched import systemd, {say_zone(zone, place)}."
    print_imported(imported, title=title, sites=SYSTEMD_SITES, mode=chosen, json=json)


def kubernetes(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Manifests, directories of them, or - for standard input.")
    ],
    start: Start = "paused",
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="NAME", help="The queue of the jobs; {image}, {namespace} in it. Default: {image}."
        ),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="The zone of the controller. Default: UTC.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the jobs of CronJobs as jobs.yaml. Nothing is run or changed.

    A job runs in the container of a worker: start workers in its image that serve its queue.

    \b
    Example:
      kubectl get cronjobs -A -o yaml | pgsched import kubernetes - > jobs.yaml
      pgsched import kubernetes manifests/ --start shadow > jobs.yaml
    """
    from pgsched.importers.kubernetes.cronjobs import ManifestOptions
    from pgsched.services.importing.machine import find_timezone
    from pgsched.services.importing.manifests import read_manifests

    chosen = check_start(start)
    zone, _ = find_timezone(timezone or "UTC")
    options = ManifestOptions(datetime.now(UTC), zone, queue=queue)
    imported = read_manifests(paths, options, read_input("-" if "-" in paths else ""))
    shown = ", ".join("standard input" if path == "-" else path for path in paths)
    title = f"Read from {shown} by pgsched import kubernetes; without timeZone a schedule is in {zone}."
    print_imported(imported, title=title, sites=KUBERNETES_SITES, mode=chosen, json=json)


def read_input(source: str) -> bytes:
    """Return the bytes of standard input for the source `-`: enough to refuse what is too long."""
    return sys.stdin.buffer.read(MOST_INPUT) if source == "-" else b""


def say_zone(zone: str, place: str) -> str:
    """Return the words that say in which zone times are read, and why."""
    return f"times in {zone} ({place})"
