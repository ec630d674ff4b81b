"""Where alerts are told. The rule: telling has an end, whatever is at the other side, and no secret gets into a table
or a log: a sink is known by its host or program, and by a digest of the rest.

Sinks are the process's own configuration (flags and environment): whoever may write to the database can make this
machine neither run a command nor call a URL.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from pgsched import log
from pgsched.config import AlertSettings
from pgsched.errors import InputError

logger = log.get("alerts")
WEBHOOK_S = 10.0
COMMAND_S = 30.0
PATIENCE_S = 45.0  # less than db.alerts.LEASE_S: nobody else takes it meanwhile
Tell = Callable[[dict[str, Any]], None]


class NotTold(Exception):
    """The sink did not take it; the text says why, without its address."""


@dataclass(frozen=True, slots=True)
class Sink:
    """`name`: what it is known by. `tell` blocks, and raises NotTold."""

    name: str
    tell: Tell


def sinks(settings: AlertSettings) -> list[Sink]:
    """The sinks of this process: the log, and what is configured. Raises InputError."""
    return [
        Sink("log", to_log),
        *(Sink(webhook_name(url), webhook(url)) for url in settings.webhooks),
        *(Sink(command_name(line), command(line)) for line in settings.commands),
    ]


def named(kind: str, shown: str, whole: str) -> str:
    """`webhook hooks.example 3f2a9c1b`: the same on every machine that has the same sink."""
    return f"{kind} {shown} {hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def webhook_name(url: str) -> str:
    """Its name. Raises InputError for what is no http or https URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("alert-webhook: expected a URL that begins with http:// or https://", "alert-webhook")
    return named("webhook", parts.hostname, url)


def command_name(line: str) -> str:
    """Its name. Raises InputError for a line that names no program."""
    try:
        return named("command", shlex.split(line)[0].rpartition("/")[2], line)
    except (ValueError, IndexError):
        raise InputError("alert-command: expected a program and its arguments", "alert-command") from None


def message(row: dict[str, Any]) -> dict[str, Any]:
    """What a sink is told. `id` stays the same for both events of an incident and for each repetition."""
    times = {name: None if row[name] is None else row[name].isoformat() for name in ("opened_at", "closed_at")}
    kept = {name: row[name] for name in ("event", "kind", "job", "run_id", "details", "recovery")}
    kept["recovery"] = row["recovery"] if row["event"] == "closed" else None
    return {"id": f"pgsched-alert-{row['alert_id']}", **kept, **times, "text": sentence(row)}


def sentence(row: dict[str, Any]) -> str:
    """One line for people; chats show it as it is."""
    whose = f"job {row['job']}" if row["job"] is not None else "pgsched"
    if row["event"] == "closed":
        return f"[over] {whose}: {row['kind']}: {row['recovery']}"
    return f"[alert] {whose}: {row['kind']}: {row['details']}"


def to_log(told: dict[str, Any]) -> None:
    """A line of the process's own log."""
    say = logger.error if told["event"] == "opened" else logger.warning
    say("alert" if told["event"] == "opened" else "alert is over", id=told["id"], kind=told["kind"], job=told["job"],
        run=told["run_id"], details=told["recovery"] or told["details"])  # fmt: skip


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is no answer: what is told goes where it was configured to go."""

    def redirect_request(self, *_: Any) -> None:
        return None


def webhook(url: str) -> Tell:
    """POST as JSON; any 2xx is an answer."""
    opener = urllib.request.build_opener(NoRedirect(), urllib.request.ProxyHandler({}))

    def tell(told: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "pgsched",
                   "Idempotency-Key": f"{told['id']}-{told['event']}"}  # fmt: skip
        request = urllib.request.Request(url, json.dumps(told).encode(), headers, method="POST")
        try:
            with opener.open(request, timeout=WEBHOOK_S) as answer:
                answer.read(4096)
        except urllib.error.HTTPError as error:
            raise NotTold(f"it answered {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise NotTold(f"{type(reason).__name__}: {getattr(reason, 'strerror', None) or 'no answer'}") from None

    return tell


def command(line: str) -> Tell:
    """Run a program with the message on its standard input, and parts of it in its environment."""
    argv = shlex.split(line)

    def tell(told: dict[str, Any]) -> None:
        given = {f"PGSCHED_ALERT_{name.upper()}": "" if value is None else str(value) for name, value in told.items()}
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                env={**os.environ, **given},
            )  # fmt: skip
        except OSError as error:
            raise NotTold(f"cannot start: {error.strerror}") from None
        try:
            _, err = process.communicate(json.dumps(told).encode(), timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise NotTold(f"it took longer than {COMMAND_S:g} s") from None
        if process.returncode:
            raise NotTold(f"exit code {process.returncode}: {err.decode(errors='replace').strip()[-300:]}")

    return tell


def tell(sink: Sink, row: dict[str, Any]) -> str | None:
    """Tell a sink, in a thread that is left behind if it hangs. None, or what went wrong."""
    outcome: list[str | None] = []

    def call() -> None:
        try:
            sink.tell(message(row))
            outcome.append(None)
        except NotTold as error:
            outcome.append(str(error))
        except Exception as error:
            outcome.append(f"{type(error).__name__}")

    thread = threading.Thread(target=call, name=f"pgsched-{sink.name.split()[0]}", daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return outcome[0] if outcome else f"no answer within {PATIENCE_S:g} s"
