"""A child process of a program that holds locks: it holds none of them, and does not keep them from ending."""

from __future__ import annotations

import os
import signal
from typing import Any

import psycopg
import pytest

from pgsched import App
from tests.support.recipes.calls import value
from tests.support.recipes.lines import asserted, running, said
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]


@pytest.mark.long
def test_a_forked_child_holds_nothing_and_does_not_disturb_its_parent(dsn: str, app: App, db: Db) -> None:
    text = """
lock = app.lock('a', ttl=2).acquire()
reader, writer = os.pipe()
child = os.fork()
if not child:
    found = [lock.is_held, lock.lost, lock.wait_lost(5)]
    try:
        lock.release()
    except LeaseLost as error:
        found.append('forked' in str(error))
    found.append(app.lock('a').try_acquire())
    mine = app.lock('b', ttl=2).acquire()
    found.append(mine.is_held)
    lock = app.lock('c')
    with lock:
        found.append(lock.is_held)
    os.write(writer, repr(found).encode())
    time.sleep(3)
    os.write(writer, repr([mine.is_held]).encode())
    sys.exit(0)  # with the handlers of the interpreter's end, as a program that forks by itself
say(lock.fence, os.read(reader, 1000).decode())
say(os.read(reader, 1000).decode())
os.waitpid(child, 0)
say(lock.is_held, app.lock('b').try_acquire())
lock.release()
say('released')
"""
    with running(dsn, text) as process:
        fence, _, found = said(process).partition(" ")
        assert found == "[False, True, True, True, False, True, True]"
        assert asserted(db, int(fence))
        assert said(process) == "[True]", "the child renews its own"
        assert said(process) == "True True", "the parent renews its own; the child has ended its own"
        assert said(process) == "released"


CONNECTING = """
from pgsched.recipes.sessions import keeper_thread
connect, opened, forked = keeper_thread.connect, threading.Event(), threading.Event()
def connect_slowly(*args, **more):
    conn = connect(*args, **more)
    opened.set()
    forked.wait()
    return conn
keeper_thread.connect = connect_slowly
"""


@pytest.mark.parametrize("begin", ["", CONNECTING], ids=["connected", "while it connects"])
def test_a_child_does_not_keep_its_parent_s_connection_open(begin: str, dsn: str, db: Db) -> None:
    """Otherwise the server would not see that the parent was killed."""
    text = """
lock = app.lock('a', ttl=60).acquire()
if forked: opened.wait()
child = os.fork()
if not child:
    time.sleep(600)
if forked: forked.set()
say(child)
time.sleep(600)
"""
    with running(dsn, (begin or "forked = None") + text) as process:
        child = int(said(process))
        own = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name"
        try:
            wait_until(lambda: value(db, f"{own} LIKE 'pgsched hints%' AND query LIKE 'LISTEN%'"), 30, "it to listen")
            process.kill()
            process.wait()
            wait_until(lambda: value(db, f"{own} ~ '^pgsched (leases|hints) '") == 0, 10, "the end of its connections")
        finally:
            os.kill(child, signal.SIGKILL)
