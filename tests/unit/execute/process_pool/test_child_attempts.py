"""All attempts of a child process end in the same way, and an ended attempt sends no more messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgsched import Run
from pgsched.app.hooks import Hooks
from pgsched.app.rules.retrying import ALWAYS
from pgsched.errors import TaskError
from pgsched.execute.output.record import Journal, Record
from pgsched.execute.process_pool.child_attempt import ChildAttempts, Stop
from pgsched.execute.process_pool.protocol import Message, attempt_message
from tests.support.executing import claim


class Recorded:
    """A relay that sends nothing, and records its calls."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.begun: list[Record] = []
        self.ended: list[Record] = []

    def begin(self) -> Record:
        self.begun.append(Record(Journal(), (0, 0), 0))
        return self.begun[-1]

    def end(self, record: Record) -> None:
        record.close()
        self.ended.append(record)

    def answer(self, message: Message) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("error", [None, TaskError("unknown parameter x"), MemoryError(), ValueError("odd")])
def test_an_attempt_whose_preparation_fails_ends_like_any_other(error: Exception | None) -> None:
    relay: Any = Recorded()
    runs: list[Run] = []

    def prepare(_: Any, run: Run) -> Any:
        runs.append(run)
        run.extend(5)
        if error is not None:
            raise error
        return lambda: None

    handler: Any = SimpleNamespace(prepare=prepare, takes_run=True, is_async=False, capture=False, retry_rule=ALWAYS)
    attempts = ChildAttempts({"t": handler}, Stop(), relay, Hooks())
    message = attempt_message(claim("task", "t"), None) | {"own": [60.0, None]}
    outcome = attempts.run(message)
    attempts.close()
    assert ("unknown parameter" in str(outcome)) is isinstance(error, TaskError)
    runs[0].extend(5)
    assert [sent["asked"] for sent in relay.sent] == ["extend"], "what the run asks for after its end is not sent"
    assert relay.ended == relay.begun and len(relay.begun) == 1
