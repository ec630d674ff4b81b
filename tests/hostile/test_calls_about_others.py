"""Functions that are called again and again about somebody else's rows are refused, and hold up nobody's work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.support.hostile.victim import JOB, TASK, Victim
from tests.support.logins import Logins, one

MANY = """DO $$ BEGIN FOR i IN 1..300 LOOP
    BEGIN PERFORM {}; EXCEPTION WHEN insufficient_privilege THEN NULL; END;
    END LOOP; END $$"""
SESSIONS = 3


@contextmanager
def called_without_end(logins: Logins, who: str, call: str) -> Iterator[None]:
    """Several sessions of this login make the call again and again."""
    over = threading.Event()
    sessions = [logins.connect(who) for _ in range(SESSIONS)]

    def go_on(session: psycopg.Connection[Any]) -> None:
        while not over.is_set():
            session.execute(MANY.format(call).encode())

    threads = [threading.Thread(target=go_on, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


CALLS = [
    "pgsched.trigger('{job}', overlap => 'skip')",
    "pgsched.reset_mark('{job}')",
    "pgsched.cancel(n), pgsched.retry(n), pgsched.retry_tree(n) FROM generate_series({run} - 5, {run} + 20) n",
]


@pytest.mark.parametrize("call", CALLS)
def test_calls_about_what_is_anothers_delay_nobody(call: str, victim: Victim) -> None:
    run = one(victim.bob, "SELECT enqueue(%s)", TASK)
    with called_without_end(victim.logins, "alice", call.format(job=JOB, run=run)):
        victim.unharmed()
