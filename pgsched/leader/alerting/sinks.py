"""Sinks: the log, webhooks, commands and URLs of apprise to which alerts are delivered.

Invariant: a delivery ends, however the other side behaves, and no secret gets into a table or a log. A sink is known by
its host or program, and by a digest of the rest; a URL of apprise by the name that its operator gave it.

Sinks are the process's own configuration (flags and environment). So write access to the database is not enough to make
this machine run a command or call a URL.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pgsched import log
from pgsched.config import AlertSettings
from pgsched.control_characters import escape_controls
from pgsched.core.text import replace_unstorable
from pgsched.errors import InputError

logger = log.get("alerts")
WEBHOOK_S = 10.0
COMMAND_S = 30.0
LOOK_S = 0.05
KEPT_ERROR_BYTES = 300  # bytes of a program's error output that are kept
PATIENCE_S = 45.0  # less than alerts.LEASE_S: meanwhile no other process takes the alert
Deliver = Callable[[dict[str, Any]], None]


class NotDelivered(Exception):
    """Raised when a sink did not take an alert; the text gives the reason, without the sink's address."""


@dataclass(frozen=True, slots=True)
class AlertSink:
    """One place to which alerts go. `name`: as in tables and logs. `deliver`: blocks, and raises NotDelivered."""

    name: str
    deliver: Deliver


def configured_sinks(settings: AlertSettings) -> list[AlertSink]:
    """Return the sinks of this process: the log, and those that are configured. Raises InputError."""
    return [
        AlertSink("log", log_alert),
        *(AlertSink(webhook_name(url), make_webhook(url)) for url in settings.webhooks),
        *(AlertSink(command_name(line), make_command(line)) for line in settings.commands),
        *(AlertSink(f"apprise {name}", make_apprise(name, url)) for name, url in settings.named.items()),
    ]


def make_apprise(name: str, url: str) -> Deliver:
    """Return a function that sends an alert to a URL of apprise.

    Raises InputError where the package is not installed, or does not know the URL. The database knows the name alone.
    """
    from pgsched.leader.alerting.apprise_sink import make_delivery

    return make_delivery(name, url)


def build_sink_name(kind: str, shown: str, whole: str) -> str:
    """Return the name of a sink, as `webhook hooks.example 3f2a9c1b`: the same on every machine with the same sink."""
    return f"{kind} {shown} {hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def webhook_name(url: str) -> str:
    """Return the name of a webhook. Raises InputError for a text that is no http or https URL."""
    return build_sink_name("webhook", address_of(url).host, url)


class Address(NamedTuple):
    """The parts of a webhook's URL. A user and password in the URL become a header."""

    secure: bool
    host: str
    port: int
    path: str
    headers: dict[str, str]


def address_of(url: str) -> Address:
    """Return the parts of a URL. Raises InputError, which does not show the URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host:
        raise InputError("alert-webhook: expected a URL that begins with http:// or https://", "alert-webhook")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise InputError("alert-webhook: percent-encode spaces and what is not ASCII", "alert-webhook")
    headers = {"Content-Type": "application/json", "User-Agent": "pgsched", "Connection": "close"}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(secure, host, port or (443 if secure else 80), path, headers)


def command_name(line: str) -> str:
    """Return the name of a command. Raises InputError for a line that names no program."""
    try:
        return build_sink_name("command", shlex.split(line)[0].rpartition("/")[2], line)
    except (ValueError, IndexError):
        raise InputError("alert-command: expected a program and its arguments", "alert-command") from None


def message(row: dict[str, Any]) -> dict[str, Any]:
    """Build the message for a sink; its `id` is the same for both events of an incident and for each repetition."""
    times = {name: None if row[name] is None else row[name].isoformat() for name in ("opened_at", "closed_at")}
    kept = {name: row[name] for name in ("event", "kind", "job", "run_id", "details", "recovery")}
    kept["recovery"] = row["recovery"] if row["event"] == "closed" else None
    return {"id": f"pgsched-alert-{row['outside_name'] or row['alert_id']}", **kept, **times, "text": sentence(row)}


def sentence(row: dict[str, Any]) -> str:
    """Describe an alert in one line for people; chats show it as it is."""
    whose = f"job {row['job']}" if row["job"] is not None else "pgsched"
    mark, what = ("over", row["recovery"]) if row["event"] == "closed" else ("alert", row["details"])
    text = f"[{mark}] {whose}: {row['kind']}: {what}"
    return escape_controls(" ".join(text.split()))


def log_alert(alert: dict[str, Any]) -> None:
    """Write an alert to the process's own log."""
    opened = alert["event"] == "opened"
    say = logger.error if opened else logger.warning
    say("alert" if opened else "alert is over", id=alert["id"], kind=alert["kind"], job=alert["job"],
        run=alert["run_id"], details=alert["recovery"] or alert["details"])  # fmt: skip


def make_webhook(url: str) -> Deliver:
    """Return a function that sends an alert to a URL by POST, as JSON.

    Any 2xx status means that the alert was taken; the rest of the answer is not read. No redirect and no proxy is used,
    so that an alert goes only where it was configured to go.
    """
    at = address_of(url)

    def tell(alert: dict[str, Any]) -> None:
        connection = (HTTPSConnection if at.secure else HTTPConnection)(at.host, at.port, timeout=WEBHOOK_S)
        key = {"Idempotency-Key": f"{alert['id']}-{alert['event']}"}
        late = threading.Event()
        try:
            connection.connect()
            with limit_duration(connection.sock, late):
                connection.request("POST", at.path, json.dumps(alert).encode(), at.headers | key)
                status = connection.getresponse().status
        except (OSError, HTTPException, ValueError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise NotDelivered(f"no answer within {WEBHOOK_S:g} s") from None
            raise NotDelivered(f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no answer'}") from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise NotDelivered(f"it answered {status}")

    return tell


@contextmanager
def limit_duration(sock: socket.socket, late: threading.Event) -> Iterator[None]:
    """End the connection after WEBHOOK_S in all, and set `late`: a socket's own timeout begins anew with each byte."""

    def end() -> None:
        late.set()
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # the socket beneath TLS

    timer = threading.Timer(WEBHOOK_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def make_command(line: str) -> Deliver:
    """Return a function that runs a program, with the message on its standard input and in its environment."""
    argv = shlex.split(line)

    def tell(alert: dict[str, Any]) -> None:
        given = {f"PGSCHED_ALERT_{name.upper()}": "" if value is None else str(value) for name, value in alert.items()}
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                bufsize=0, env={**os.environ, **given},
            )  # fmt: skip
        except OSError as error:
            raise NotDelivered(f"cannot start: {error.strerror}") from None
        try:
            output = feed_and_wait(process, json.dumps(alert).encode())
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            raise NotDelivered(f"exit code {process.returncode}: {log.redact(last_line(output))}")

    return tell


def last_line(output: bytes) -> str:
    """Return the last line of a program's output that is not blank: the reason why the program stopped."""
    lines = replace_unstorable(output.decode(errors="replace")).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")


def feed_and_wait(process: subprocess.Popen[bytes], given: bytes) -> bytes:
    """Give a program its input until it has ended; return the end of its error output.

    Raises NotTold after COMMAND_S. At most KEPT_ERROR_BYTES of the output are kept. Processes that the program leaves
    running, with its output open, are not waited for.
    """
    output, until = b"", time.monotonic() + COMMAND_S
    assert process.stdin is not None
    assert process.stderr is not None
    with process.stdin as giving, process.stderr as saying, selectors.DefaultSelector() as ready:
        for pipe, event in ((giving, selectors.EVENT_WRITE), (saying, selectors.EVENT_READ)):
            os.set_blocking(pipe.fileno(), False)
            ready.register(pipe, event)
        while True:
            over = process.poll() is not None
            for key, events in ready.select(0 if over else LOOK_S):
                if events & selectors.EVENT_WRITE:
                    given = given[write_input(key.fd, given) :]
                    pipe, more = giving, bool(given)
                else:
                    read = os.read(key.fd, 65_536)
                    pipe, more, output = saying, bool(read), (output + read)[-KEPT_ERROR_BYTES:]
                if not more:
                    ready.unregister(pipe)
                    pipe.close()
            if over:
                return output
            if time.monotonic() > until:
                raise NotDelivered(f"it took longer than {COMMAND_S:g} s")


def write_input(descriptor: int, given: bytes) -> int:
    """Write input to a program; return how many bytes it took, or all if it reads no more."""
    try:
        return os.write(descriptor, given)
    except BrokenPipeError:
        return len(given)


def deliver(sink: AlertSink, row: dict[str, Any]) -> str | None:
    """Deliver an alert in a thread that is left behind if it hangs; return None, or the reason of the failure."""
    outcome: list[str | None] = []

    def call() -> None:
        try:
            sink.deliver(message(row))
            outcome.append(None)
        except NotDelivered as error:
            outcome.append(str(error))
        except Exception as error:
            outcome.append(f"{type(error).__name__}")

    thread = threading.Thread(target=call, name=f"pgsched-{sink.name.split()[0]}", daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return outcome[0] if outcome else f"no answer within {PATIENCE_S:g} s"
