"""The messages between a worker and its child processes: their frames, and how each message is made and read.

Invariant: messages are JSON, so that neither side can run the other's data.

A frame is four bytes of length, then the text. The first frame to a child is a Home, and every other one an attempt.
The first frame from a child says whether it could import the app. Every other one is an outcome, output, or a request
of the handler.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pgsched import hidden_environment, log
from pgsched.app.app_location import AppLocation
from pgsched.app.control import AttemptState, Control
from pgsched.app.run import Run
from pgsched.core.model import Claim, Outcome, Result
from pgsched.core.schedule.slot_text import SlotTerms
from pgsched.execute.output.kept_output import Taken
from pgsched.execute.output.record import STREAMS, Record, progress_to_json
from pgsched.telemetry import tracing

HEAD_BYTES = 4
LONGEST_BYTES = 1 << 26  # a longer frame is text that user code wrote into the channel
Message = dict[str, Any]


def frame(message: Message) -> bytes:
    """Return a message as bytes."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return len(text).to_bytes(HEAD_BYTES) + text


def frame_length(head: bytes | bytearray) -> int:
    """Return the length of the text after this head. Raises ValueError where these bytes are no head."""
    size = int.from_bytes(head[:HEAD_BYTES])
    if size > LONGEST_BYTES:
        raise ValueError(f"a frame of {size:,} bytes")
    return size


def home_message(home: AppLocation) -> Message:
    """Return the first message to a child: the app's path, its database and the secrets of the environment."""
    message: Message = {"app": home.path, "dsn": home.dsn}
    return message | ({"secrets": hidden_environment.dropped_secrets()} if hidden_environment.is_hidden() else {})


def attempt_message(claim: Claim, memory_mb: int | None, own: AttemptState | None = None) -> Message:
    """Return the message that sends an attempt to a child.

    `own`: what the handler may do about its attempt, where it takes a Run.
    """
    slot = claim.scheduled_at
    return {
        "task": claim.task,
        "args": claim.args,
        "memory_mb": memory_mb,
        "run": [claim.id, claim.job_id, slot and slot.isoformat(), claim.attempt, claim.token.hex],
        "more": [claim.queue, claim.max_attempts],
        "slot": [claim.interval_start and claim.interval_start.isoformat(), claim.slot_zone],
        "own": None if own is None else [own.seconds_left(), own.dsn],
        "trace": tracing.current_headers(),
    }


def run_of(message: Message, record: Record, own: AttemptState) -> Run:
    """Return the Run that an attempt's message describes."""
    run_id, job_id, slot, attempt, token = message["run"]
    queue, max_attempts = message["more"]
    start, zone = message["slot"]
    return Run(
        run_id, job_id, slot and datetime.fromisoformat(slot), attempt, UUID(token),
        task=message["task"], queue=queue, max_attempts=max_attempts, own=own, record=record,
        slot_terms=None if job_id is None else SlotTerms(start and datetime.fromisoformat(start), zone),
    )  # fmt: skip


def log_attempt_of(message: Message) -> log.Attempt:
    """Return the fields with which log lines name the attempt."""
    run_id, job_id, _, attempt, _ = message["run"]
    return log.Attempt(run_id, job_id, attempt, message["task"])


class RemoteControl:
    """A handler's requests to the worker from a child process, each sent in a frame. Thread-safe."""

    def __init__(self, own: Any, stopping: Callable[[], bool], tell: Callable[[Message], None]) -> None:
        seconds_left = None if own is None else own[0]
        self.dsn: str | None = None if own is None else own[1]
        self.deadline: float | None = None if seconds_left is None else time.monotonic() + seconds_left
        self._stopping = stopping
        self._tell = tell
        self._closed = False

    @property
    def stopping(self) -> bool:
        """Whether the attempt was asked to stop."""
        return self._stopping()

    def extend(self, seconds: float) -> None:
        """Let the attempt time out `seconds` later."""
        if self.deadline is not None:
            self.deadline += seconds
            self._ask({"asked": "extend", "seconds": seconds})

    def settling(self, done: bool | None) -> None:
        """Report the handler's own settlement: about to be committed (None), committed (True), or not (False)."""
        self._ask({"asked": "settling", "done": done})

    def close(self) -> None:
        """Send no more requests: after the attempt's end, a thread's request would be about the next attempt."""
        self._closed = True

    def _ask(self, message: Message) -> None:
        if not self._closed:
            self._tell(message)


def apply_request(control: Control, message: Message) -> None:
    """Carry out a handler's request from a child.

    Raises KeyError, TypeError or ValueError where the message is no request.
    """
    if message["asked"] == "extend":
        control.extend(float(message["seconds"]))
    elif message["asked"] == "settling":
        control.settling(None if message["done"] is None else bool(message["done"]))
    else:
        raise ValueError(f"nobody can ask for {message['asked']!r}")


def output_message(taken: Taken) -> Message:
    """Return the message with an attempt's output and progress, for the worker.

    Latin-1 carries any byte through JSON.
    """
    pieces = [[stream, data.decode("latin-1")] for stream, data in taken.tail]
    progress = None if taken.progress is None else progress_to_json(taken.progress)
    return {"said": pieces, "cut": [taken.cut_bytes, taken.cut_lines], "progress": progress}


def apply_output(record: Record, message: Message) -> None:
    """Add a child's output and progress to the attempt's Record.

    Raises KeyError, TypeError or ValueError where the message is malformed.
    """
    cut_bytes, cut_lines = message["cut"]
    if cut_bytes:
        record.skip(int(cut_bytes), int(cut_lines))
    for stream, text in message["said"]:
        record.add(stream if stream in STREAMS else "log", text.encode("latin-1"))
    if message["progress"] is not None:
        done, total, note = message["progress"]
        record.progress(done, total, note)


def outcome_message(outcome: Outcome, *, retire: bool) -> Message:
    """Return the message with an outcome, for the worker. `retire`: this child should run nothing more."""
    return {
        "result": outcome.result.value,
        "value": outcome.value,
        "error": outcome.error,
        "traceback": outcome.traceback,
        "retry": outcome.retry,
        "retry_in_s": None if outcome.retry_in is None else outcome.retry_in.total_seconds(),
        "retire": retire,
    }


def outcome_of(message: Message) -> Outcome:
    """Return the outcome in a child's message.

    Raises KeyError, TypeError or ValueError where the message holds none.
    """
    retry_in_s = message["retry_in_s"]
    return Outcome(
        Result(message["result"]),
        value=message["value"],
        error=message["error"],
        traceback=message["traceback"],
        retry=message["retry"],
        retry_in=None if retry_in_s is None else timedelta(seconds=retry_in_s),
    )
