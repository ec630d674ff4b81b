"""Sinks of apprise: mail, Slack, Teams and what else the package knows (https://appriseit.com/services/).

Invariant: the URL of such a sink holds secrets, and stays in this process. What comes from the database is text of the
message and nothing else: it is never read as a URL, a file or a template.

apprise is an optional package (pgsched[apprise]); only a process with such a sink imports it.
"""

from __future__ import annotations

from typing import Any

from pgsched.errors import InputError
from pgsched.leader.alerting.sinks import Deliver, NotDelivered

TITLE_CHARACTERS = 200
BODY_CHARACTERS = 20_000


def make_delivery(name: str, url: str) -> Deliver:
    """Return a function that sends an alert to this URL. Raises InputError, which does not show the URL."""
    try:
        import apprise
    except ImportError as error:
        raise InputError(
            "alert-apprise: needs the package apprise: pip install 'pgsched[apprise]'", "alert-apprise"
        ) from error
    # no plug-ins of the user's and no escapes in the text: what is sent comes from the database
    asset = apprise.AppriseAsset(app_id="pgsched", app_desc="pgsched", app_url="", interpret_escapes=False)
    service = apprise.Apprise(asset=asset)
    if not service.add(url):
        raise InputError(f"alert-apprise: {name}: apprise cannot use this URL", "alert-apprise")

    def tell(alert: dict[str, Any]) -> None:
        opened = alert["event"] == "opened"
        done = service.notify(
            title=title_of(alert),
            body=body_of(alert),
            notify_type=apprise.NotifyType.FAILURE if opened else apprise.NotifyType.SUCCESS,
            body_format=apprise.NotifyFormat.TEXT,
            interpret_escapes=False,
        )
        if not done:
            raise NotDelivered("apprise: the service did not take it")

    return tell


def title_of(alert: dict[str, Any]) -> str:
    """Return the subject of a message: one line."""
    words = f"pgsched: {alert['job'] or 'system'}: {alert['kind']}" + ("" if alert["event"] == "opened" else " is over")
    return " ".join(words.split())[:TITLE_CHARACTERS]


def body_of(alert: dict[str, Any]) -> str:
    """Return the text of a message: what happened, then the run and the times."""
    lines = [str(alert["text"]), "", f"since {alert['opened_at']}"]
    if alert["closed_at"] is not None:
        lines.append(f"until {alert['closed_at']}")
    if alert["run_id"] is not None:
        lines.append(f"pgsched run show {alert['run_id']}")
    return "\n".join(lines)[:BODY_CHARACTERS]
