"""`pgsched health`: ask the HTTP endpoint of a worker, for health checks in containers without curl."""

from __future__ import annotations

from typing import Annotated

import typer

from pgsched.control_characters import escape_controls

ASK_S = 5.0


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("health")(health)


def health(
    address: Annotated[str, typer.Argument(metavar="[HOST]:PORT", help="What the worker's --health or --metrics is.")],
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether it may take runs, not only whether it lives.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=0.1, max=60)] = ASK_S,
) -> None:
    """Ask one worker whether it is alive: exit code 0, or 1 with the reason.

    It needs no database: it asks the endpoint of `pgsched worker --health` on this machine.

    Example: pgsched health :9464
    """
    import http.client

    from pgsched.telemetry.endpoint import address as parsed

    host, port = parsed("address", address)
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    path = "/readyz" if ready else "/healthz"
    try:
        link = http.client.HTTPConnection(host, port, timeout=timeout)
        link.request("GET", path)
        answer = link.getresponse()
        text = answer.read(10_000).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        typer.echo(f"no answer from {host}:{port}{path}: {error or type(error).__name__}", err=True)
        raise typer.Exit(1) from None
    typer.echo(escape_controls(text, "\n") or str(answer.status), err=answer.status != 200)
    raise typer.Exit(0 if answer.status == 200 else 1)
