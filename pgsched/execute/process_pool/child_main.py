"""The program of a pooled child process: runs one handler after the other in its main thread.

Invariant: each attempt ends with one frame on the channel, or with the end of this process.

Two descriptors lead to the worker:

- The channel. Only the main thread reads it. The relay writes output there, and lets only one thread write at a time.
- The stop line. A byte on it ends the attempt softly. Its end of file means that the worker is gone, so this whole
  process group is killed.

Handlers print to the worker's own stdout and stderr.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO

from pgsched import hidden_environment, log
from pgsched.app import app_location
from pgsched.app.control import IN_HANDLER
from pgsched.app.signals import format_error
from pgsched.errors import PgschedError
from pgsched.execute import signal_isolation
from pgsched.execute.outcomes import traceback_text
from pgsched.execute.output.relay import Relay
from pgsched.execute.output.streams import flush_each_line
from pgsched.execute.process_pool import child_attempt
from pgsched.execute.process_pool.protocol import HEAD_BYTES, Message, frame, frame_length
from pgsched.execute.subprocess.child import DIE_WITH
from pgsched.telemetry import otel

if TYPE_CHECKING:
    from pgsched.app.base import AppBase


def run_child(descriptors: str) -> None:
    """Serve until the worker closes the channel.

    `descriptors`: the numbers of channel, stop line and fault file, and the worker's pid, with commas between.
    """
    channel_fd, stop_fd, fault_fd, worker = (int(part) for part in descriptors.split(","))
    DIE_WITH(worker)
    for fd in (channel_fd, stop_fd, fault_fd):
        os.set_inheritable(fd, False)
    faulthandler.enable(fault_fd, all_threads=False)
    # A stop of the whole service signals every process, but the worker decides how attempts end: ignore signals here.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal_isolation.reset_in_children((signal.SIGINT, signal.SIGTERM))
    stop = child_attempt.Stop()
    threading.Thread(target=listen, args=(stop_fd, stop, os.getpid()), name="pgsched-stop", daemon=True).start()
    channel = socket.socket(fileno=channel_fd)
    with channel, channel.makefile("rb") as incoming:
        serve_attempts(channel, incoming, stop)


def serve_attempts(channel: socket.socket, incoming: BinaryIO, stop: child_attempt.Stop) -> None:
    """Import the app, then run attempts until the channel is closed."""
    first = read_message(incoming)
    if first is None:
        return
    if "secrets" in first:  # secrets come by the channel, because other users may see a process's start environment
        hidden_environment.hide()
        hidden_environment.restore_secrets(first["secrets"])
    flush_each_line()
    relay = Relay(lambda message: channel.sendall(frame(message)))
    try:
        # as in the worker, before the import: the app may set up its own logging
        log.configure(os.environ.get("PGSCHED_LOG", "info"), os.environ.get("PGSCHED_LOG_FORMAT", "console"))
        app = import_app(first)
        if os.environ.get("PGSCHED_OTEL"):
            otel.set_up()
        IN_HANDLER.set(True)
        place = child_attempt.ChildAttempts(app.tasks, stop, relay, app.hooks)
        place.start()
        hidden_environment.drop()
    except BaseException as error:
        channel.sendall(
            frame({"error": format_error(user_error_of(error)), "traceback": traceback_text(user_error_of(error))})
        )
        return
    channel.sendall(frame({"error": None}))
    me = os.getpid()
    while (message := read_message(incoming)) is not None:
        answer = place.run(message)
        if os.getpid() != me:  # a process that the handler forked returned to here: the attempt is not its own
            os._exit(0)
        flush()
        relay.answer(answer)
    place.close()


def import_app(message: Message) -> AppBase:
    """Import and return the worker's app."""
    from pgsched.app.base import import_app

    app_location.importing = True
    try:
        app = import_app(message["app"])
    finally:
        app_location.importing = False
    if app.dsn is None:
        app.dsn = message["dsn"]
    return app


def user_error_of(error: BaseException) -> BaseException:
    """Return the user's exception behind an error of pgsched that only reports it, else the error itself."""
    return error.__cause__ if isinstance(error, PgschedError) and error.__cause__ is not None else error


def read_message(incoming: BinaryIO) -> Message | None:
    """Return the next message, or None when the worker has closed the channel."""
    head = incoming.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    size = frame_length(head)
    body = incoming.read(size)
    message: Message | None = json.loads(body) if len(body) == size else None
    return message


def flush() -> None:
    """Flush what the handler printed, before its outcome is sent."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed by the handler, or replaced by something of its own
            stream.flush()


def listen(stop_fd: int, stop: child_attempt.Stop, group: int) -> None:
    """Read the stop line, in a thread of its own: request a stop, or kill the group when the worker is gone."""
    # Signals are for the main thread: a signal that this thread takes would not wake a wait there.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        if not os.read(stop_fd, 1):
            os.killpg(group, signal.SIGKILL)
        stop.ask()
