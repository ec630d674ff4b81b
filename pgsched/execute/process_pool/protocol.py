"""The rule: what travels between a worker and its children is JSON in frames, so that neither can run the other's data.

A frame is four bytes of length, then the text. The first frame to a child is a Home, every other one an attempt; the
first from a child says whether it could import the app, every other one is an outcome or something that was said.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pgsched import hidden_environment, log
from pgsched.app.app_location import Home
from pgsched.app.control import Control, Own
from pgsched.app.run import Run
from pgsched.core.model import Claim, Outcome, Result
from pgsched.execute.output.kept_output import Taken
from pgsched.execute.output.record import STREAMS, Record, in_json
from pgsched.telemetry import tracing

HEAD_BYTES = 4
LONGEST_BYTES = 1 << 26  # more than this is no frame but something that user code wrote into the channel
Message = dict[str, Any]


def frame(message: Message) -> bytes:
    """A message as bytes."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return len(text).to_bytes(HEAD_BYTES) + text


def length(head: bytes | bytearray) -> int:
    """How long the text after this head is. ValueError if this is no head."""
    size = int.from_bytes(head[:HEAD_BYTES])
    if size > LONGEST_BYTES:
        raise ValueError(f"a frame of {size:,} bytes")
    return size


def home_message(home: Home) -> Message:
    """What a child is told first."""
    told: Message = {"app": home.path, "dsn": home.dsn}
    return told | ({"secrets": hidden_environment.dropped()} if hidden_environment.is_hidden() else {})


def attempt_message(claim: Claim, memory_mb: int | None, own: Own | None = None) -> Message:
    """An attempt, for a child. `own`: what its handler may do about it, if that takes a Run."""
    slot = claim.scheduled_at
    return {
        "task": claim.task,
        "args": claim.args,
        "memory_mb": memory_mb,
        "run": [claim.id, claim.job_id, slot and slot.isoformat(), claim.attempt, claim.token.hex],
        "more": [claim.queue, claim.max_attempts],
        "own": None if own is None else [own.seconds_left(), own.dsn],
        "trace": tracing.carried(),
    }


def run_of(message: Message, record: Record, own: Own) -> Run:
    """The Run of an attempt."""
    run_id, job_id, slot, attempt, token = message["run"]
    queue, max_attempts = message["more"]
    return Run(
        run_id, job_id, slot and datetime.fromisoformat(slot), attempt, UUID(token),
        task=message["task"], queue=queue, max_attempts=max_attempts, own=own, record=record,
    )  # fmt: skip


def told_run(message: Message) -> log.Attempt:
    """What log lines say of an attempt."""
    run_id, job_id, _, attempt, _ = message["run"]
    return log.Attempt(run_id, job_id, attempt, message["task"])


class FarControl:
    """A handler's way to the worker from a child process: what it asks for is told in a frame. Thread-safe."""

    def __init__(self, own: Any, stopping: Callable[[], bool], tell: Callable[[Message], None]) -> None:
        seconds_left = None if own is None else own[0]
        self.dsn: str | None = None if own is None else own[1]
        self.deadline: float | None = None if seconds_left is None else time.monotonic() + seconds_left
        self._stopping = stopping
        self._tell = tell
        self._closed = False

    @property
    def stopping(self) -> bool:
        return self._stopping()

    def extend(self, seconds: float) -> None:
        if self.deadline is not None:
            self.deadline += seconds
            self._ask({"asked": "extend", "seconds": seconds})

    def settling(self, done: bool | None) -> None:
        self._ask({"asked": "settling", "done": done})

    def close(self) -> None:
        """The attempt has ended: what a thread of it asks for now would be about the next one."""
        self._closed = True

    def _ask(self, message: Message) -> None:
        if not self._closed:
            self._tell(message)


def obey(control: Control, message: Message) -> None:
    """What a handler in a child asks for. Raises KeyError, TypeError or ValueError if it is nothing."""
    if message["asked"] == "extend":
        control.extend(float(message["seconds"]))
    elif message["asked"] == "settling":
        control.settling(None if message["done"] is None else bool(message["done"]))
    else:
        raise ValueError(f"nobody can ask for {message['asked']!r}")


def said_message(taken: Taken) -> Message:
    """What a child's attempt has said, for the worker. Latin-1 takes any byte through JSON."""
    pieces = [[stream, data.decode("latin-1")] for stream, data in taken.tail]
    progress = None if taken.progress is None else in_json(taken.progress)
    return {"said": pieces, "cut": [taken.cut_bytes, taken.cut_lines], "progress": progress}


def hear(record: Record, message: Message) -> None:
    """What a child's attempt has said, for its Record. Raises KeyError, TypeError or ValueError if it is nothing."""
    cut_bytes, cut_lines = message["cut"]
    if cut_bytes:
        record.skip(int(cut_bytes), int(cut_lines))
    for stream, text in message["said"]:
        record.add(stream if stream in STREAMS else "log", text.encode("latin-1"))
    if message["progress"] is not None:
        done, total, note = message["progress"]
        record.progress(done, total, note)


def outcome_message(outcome: Outcome, *, retire: bool) -> Message:
    """An outcome, for the worker. `retire`: this child should run nothing more."""
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
    """The outcome that a child told. Raises KeyError, TypeError or ValueError if it is none."""
    retry_in_s = message["retry_in_s"]
    return Outcome(
        Result(message["result"]),
        value=message["value"],
        error=message["error"],
        traceback=message["traceback"],
        retry=message["retry"],
        retry_in=None if retry_in_s is None else timedelta(seconds=retry_in_s),
    )
