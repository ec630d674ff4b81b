"""A process that a handler forked can print, although the parent held the journal's lock at the fork."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pgsched.execute.output.record import Journal, Record
from pgsched.execute.output.streams import Streams, capturing


def journal(keep_bytes: int = 1 << 20) -> Journal:
    made = Journal(keep_bytes)
    made.on_wake = lambda: None
    return made


def said(given: Record) -> str:
    """Return everything that a record holds now."""
    taken = given.take()
    return b"".join(data for _, data in [*taken.head, *taken.tail]).decode()


@contextmanager
def in_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Install the capturing streams in a process without logging set up.

    This is not a fixture: between the phases of a test, pytest installs its own streams and handlers.
    """
    out, err, root = io.StringIO(), io.StringIO(), logging.getLogger()
    with monkeypatch.context() as patch:
        patch.setattr(root, "handlers", [])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        level = root.level
        root.setLevel(logging.WARNING)
        streams = Streams()
        streams.install()
        try:
            yield out, err
        finally:
            streams.remove()
            assert (sys.stdout, sys.stderr, root.level) == (out, err, logging.WARNING)
            root.setLevel(level)


def test_a_forked_process_prints_although_the_lock_was_held_at_the_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = journal()
    given = Record(kept, (1, 1), 1)
    with in_place(monkeypatch), capturing(given):
        with kept.lock:
            made = os.fork()
            if not made:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(10)
                print("in the child")
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]) == 0
        print("in the parent")
    assert said(given) == "in the parent\n"
