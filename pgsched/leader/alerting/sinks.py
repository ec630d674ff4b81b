"""Where alerts are told. The rule: telling has an end, whatever is at the other side, and no secret gets into a table
or a log: a sink is known by its host or program, and by a digest of the rest.

Sinks are the process's own configuration (flags and environment): whoever may write to the database can make this
machine neither run a command nor call a URL.
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
from pgsched.control_characters import clean
from pgsched.core.text import storable
from pgsched.errors import InputError

logger = log.get("alerts")
WEBHOOK_S = 10.0
COMMAND_S = 30.0
LOOK_S = 0.05
SAID_BYTES = 300  # of what a program complains of
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
    return named("webhook", address_of(url).host, url)


class Address(NamedTuple):
    """Where a webhook is. A user and password in the URL are a header."""

    secure: bool
    host: str
    port: int
    path: str
    headers: dict[str, str]


def address_of(url: str) -> Address:
    """The parts of a URL. Raises InputError, which does not show it."""
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
    return {"id": f"pgsched-alert-{row['outside_name'] or row['alert_id']}", **kept, **times, "text": sentence(row)}


def sentence(row: dict[str, Any]) -> str:
    """One line for people; chats show it as it is."""
    whose = f"job {row['job']}" if row["job"] is not None else "pgsched"
    mark, what = ("over", row["recovery"]) if row["event"] == "closed" else ("alert", row["details"])
    text = f"[{mark}] {whose}: {row['kind']}: {what}"
    return clean(" ".join(text.split()))


def to_log(alert: dict[str, Any]) -> None:
    """A line of the process's own log."""
    opened = alert["event"] == "opened"
    say = logger.error if opened else logger.warning
    say("alert" if opened else "alert is over", id=alert["id"], kind=alert["kind"], job=alert["job"],
        run=alert["run_id"], details=alert["recovery"] or alert["details"])  # fmt: skip


def webhook(url: str) -> Tell:
    """POST as JSON; any 2xx is an answer, whatever comes behind it. Neither redirects nor proxies are followed: what is
    told goes where it was configured to go."""
    at = address_of(url)

    def tell(alert: dict[str, Any]) -> None:
        connection = (HTTPSConnection if at.secure else HTTPConnection)(at.host, at.port, timeout=WEBHOOK_S)
        key = {"Idempotency-Key": f"{alert['id']}-{alert['event']}"}
        late = threading.Event()
        try:
            connection.connect()
            with cut_off(connection.sock, late):
                connection.request("POST", at.path, json.dumps(alert).encode(), at.headers | key)
                status = connection.getresponse().status
        except (OSError, HTTPException, ValueError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise NotTold(f"no answer within {WEBHOOK_S:g} s") from None
            raise NotTold(f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no answer'}") from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise NotTold(f"it answered {status}")

    return tell


@contextmanager
def cut_off(sock: socket.socket, late: threading.Event) -> Iterator[None]:
    """WEBHOOK_S for all of it: a socket's own timeout begins anew with each byte."""

    def end() -> None:
        late.set()
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # beneath TLS

    timer = threading.Timer(WEBHOOK_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def command(line: str) -> Tell:
    """Run a program with the message on its standard input, and parts of it in its environment."""
    argv = shlex.split(line)

    def tell(alert: dict[str, Any]) -> None:
        given = {f"PGSCHED_ALERT_{name.upper()}": "" if value is None else str(value) for name, value in alert.items()}
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                bufsize=0, env={**os.environ, **given},
            )  # fmt: skip
        except OSError as error:
            raise NotTold(f"cannot start: {error.strerror}") from None
        try:
            output = attended(process, json.dumps(alert).encode())
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            raise NotTold(f"exit code {process.returncode}: {log.redact(last_line(output))}")

    return tell


def last_line(output: bytes) -> str:
    """Where a program says what stopped it."""
    lines = storable(output.decode(errors="replace")).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")


def attended(process: subprocess.Popen[bytes], given: bytes) -> bytes:
    """Give a program its input until it has ended; the end of what it complained of. Raises NotTold after COMMAND_S.

    However much it says, SAID_BYTES are kept; what it leaves running, with its output open, is not waited for.
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
                    given = given[fed(key.fd, given) :]
                    pipe, more = giving, bool(given)
                else:
                    read = os.read(key.fd, 65_536)
                    pipe, more, output = saying, bool(read), (output + read)[-SAID_BYTES:]
                if not more:
                    ready.unregister(pipe)
                    pipe.close()
            if over:
                return output
            if time.monotonic() > until:
                raise NotTold(f"it took longer than {COMMAND_S:g} s")


def fed(descriptor: int, given: bytes) -> int:
    """How much of it a program took; all, if it wants no more."""
    try:
        return os.write(descriptor, given)
    except BrokenPipeError:
        return len(given)


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
