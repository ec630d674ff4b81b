"""pgsched.log writes each event as one line, in one write."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from pgsched import log
from tests.support.once import logs_as_found


class Writes(io.StringIO):
    """A stream that keeps each write separately, because another thread may write between two writes."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_a_line_is_one_write_with_its_end(fmt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads log at the same time, by structlog and by logging. Another line could split a line of two writes."""
    kept = Writes()
    monkeypatch.setattr(sys, "stderr", kept)
    with logs_as_found():
        log.configure(fmt=fmt)
        log.get("worker").info("ours", run=1)
        assert logging.lastResort is not None
        logging.lastResort.handle(logging.makeLogRecord({"msg": "theirs", "levelno": logging.WARNING}))
    assert len(kept.texts) == 2
    assert all(text.endswith("\n") and text.count("\n") == 1 for text in kept.texts)
