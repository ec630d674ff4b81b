"""Function calls about another owner's rows are refused, and delay no work, however often they are made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.hostile.victim import JOB, TASK, Victim
from tests.support.logins import Logins, one

MANY = """DO $$ BEGIN FOR i IN 1..300 LOOP
    BEGIN PERFORM {}; EXCEPTION WHEN insufficient_privilege THEN NULL; END;
    END LOOP; END $$"""
SESSIONS = 3
Connect = Callable[..., psycopg.Connection]


@contextmanager
def called_without_end(logins: Logins, who: str, call: str) -> Iterator[None]:
    """Let several sessions of this login repeat the call until the end of the block."""
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


@pytest.mark.long
def test_endless_calls_about_another_owner_s_rows_delay_nobody(victim: Victim) -> None:
    for call in CALLS:
        print(call)
        run = one(victim.bob, "SELECT enqueue(%s)", TASK)
        with called_without_end(victim.logins, "alice", call.format(job=JOB, run=run)):
            victim.unharmed()


# The functions that a producer may call and that run with the rights of the tables' owner. A call about another owner's
# job, run or backfill is refused, or finds nothing.
REFUSED = {
    "node_create": "node_create('hers', 'b', '1')",
    "node_delete": "node_delete('hers/n')",
    "node_prune": "node_prune('hers')",
    "node_read": "node_read('hers/n')",
    "node_set": "node_set('hers/n', '2')",
    "backfill": "backfill('hers', now() - interval '2 days', now() - interval '1 day')",
    "backfill_in_order": "backfill_in_order(ARRAY['hers'], now() - interval '2 days', now() - interval '1 day')",
    "cancel": "cancel({run})",
    "cancel_backfill": "cancel_backfill({backfill})",
    "meet_run": "meet_run({run}, 'replace', 't', '{{}}', now())",
    "reset_mark": "reset_mark('hers')",
    "retry": "retry({run})",
    "retry_now": "retry_now({run})",
    "retry_tree": "retry_tree({dead})",
    "run_of_key": "run_of_key('k')",
    "set_tags": "set_tags({run}, '{{a}}')",
    "take_queued_key": "take_queued_key('q', 't')",
    "take_key": "take_key('idempotency', 'i', 't', now() + interval '1 hour')",
    "delete_calendar": "delete_calendar('hers')",
    "remove_calendar_times": "remove_calendar_times('hers', '{{1}}')",
    "trigger": "trigger('hers')",
    "update_run": "update_run({run}, 1)",
    "assert_lock": "assert_lock('hers', {fence})",
    "barrier_enter": "barrier_enter('hers/b', gen_random_uuid(), 2, gen_random_uuid())",
    "barrier_leave": "barrier_leave('hers/b', gen_random_uuid(), 1)",
    "grant_names": "grant_names('hers', 'pgsched_producer')",
    "kv_add": "kv_add('hers/n', 1)",
    "kv_changes": "kv_changes('hers/', 0)",
    "kv_delete": "kv_delete('hers/n')",
    "barrier_withdraw": "barrier_withdraw('hers/b', gen_random_uuid())",
    "kv_get": "kv_get('hers/n')",
    "kv_list": "kv_list('hers/')",
    "kv_put": "kv_put('hers/n', '1')",
    "item_counts": "item_counts('hers')",
    "item_get": "item_get('hers', gen_random_uuid(), '{session}')",
    "item_put": "item_put('hers', '1')",
    "item_put_many": "item_put_many('hers', ARRAY['1']::jsonb[])",
    "lock_acquire": "lock_acquire('hers', gen_random_uuid())",
    "lock_break": "lock_break('hers')",
    "lock_line": "lock_line('hers')",
    "lock_renew": "lock_renew('hers', '{place}')",
    "lock_release": "lock_release('hers', '{place}')",
    "restored": "restored()",
    "revoke_names": "revoke_names('hers', 'pgsched_producer')",
    "session_end": "session_end('{session}')",
    "session_leases": "session_leases('{session}', ARRAY['{place}']::uuid[])",
    "session_open": "session_open('{session}')",
    "session_renew": "session_renew('{session}')",
}
NOTHING = {
    "await_runs": "await_runs(ARRAY[{run}]::bigint[])",
    "bind_key": "bind_key('idempotency', 'i', {run})",
    "carry_trace": "carry_trace({run}, 'created', '{{}}')",
    "delete_job": "delete_job('hers')",
    "entry_state": "entry_state('hers', NULL)",
    "forget_slots": "forget_slots(1)",
    "hold_run": "hold_run({run})",
    "include_dates": "include_dates('hers', '2026-01-01', '2026-01-02')",
    "lock_list": "lock_list('hers')",
    "node_roots": "node_roots()",
    "item_consume": "item_consume({item}, '{hold}', '{session}')",
    "item_consume_many": "item_consume_many(ARRAY[{item}]::bigint[], ARRAY['{hold}']::uuid[], '{session}')",
    "item_extend": "item_extend({item}, '{hold}')",
    "item_give_back": "item_give_back({item}, '{hold}')",
    "item_leave": "item_leave('hers', '{hold}', '{session}')",
}
ABOUT_NOBODY = {"assert_claim", "assert_fleet", "check_args", "outside_name", "task_keys", "task_options", "tell_once"}


def test_calls_about_another_owner_s_rows_are_refused_before_any_lock(
    logins: Logins, db: psycopg.Connection, connect: Connect
) -> None:
    """Calls that locked a row first would keep it from workers and the leader, again and again."""
    alice, bob, holder = logins.connect("alice"), logins.connect("bob"), connect(autocommit=False)
    callable_ones = {name for (name,) in db.execute(
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace AND prosecdef"
        " AND has_function_privilege(%s, oid, 'EXECUTE')", [logins.name("bob")])}  # fmt: skip
    assert callable_ones == REFUSED.keys() | NOTHING.keys() | ABOUT_NOBODY
    alice.execute("INSERT INTO jobs (name, task, schedule) VALUES ('hers', 't', '@every 1h')")
    alice.execute("INSERT INTO job_calendars (job_id, from_date) SELECT id, '2026-01-01' FROM jobs")
    alice.execute("INSERT INTO calendars (name) VALUES ('hers')")
    alice.execute("INSERT INTO calendar_times (calendar, from_date) VALUES ('hers', '2026-01-01')")
    db.execute("UPDATE pgsched.jobs SET anchor_at = now() - interval '9 days'")
    ids = {
        "run": one(alice, "SELECT enqueue('t', unique_key => 'k', idempotency_key => 'i')"),
        "dead": one(alice, "SELECT enqueue('t')"),
        "backfill": one(alice, "SELECT backfill('hers', now() - interval '2 days', now() - interval '1 day')"),
        "session": uuid4(),
        "place": uuid4(),
        "hold": uuid4(),
    }
    one(alice, "SELECT session_open(%s)", ids["session"])
    ids["fence"] = one(alice, "SELECT fence FROM lock_acquire('hers', %s, session => %s)", ids["place"], ids["session"])
    one(alice, "SELECT kv_put('hers/n', '1')")
    one(alice, "SELECT item_put('hers', '1')")
    ids["item"] = one(alice, "SELECT id FROM item_get('hers', %s, %s)", ids["hold"], ids["session"])
    alice.execute("SELECT enqueue('t', unique_key => 'q', unique_scope => 'while_queued')")
    alice.execute("SELECT cancel(%s)", [ids["dead"]])
    alice.execute("SELECT kv_put('hers/a', '1')")
    tables = ("jobs", "runs", "backfills", "job_calendars", "calendars", "calendar_times", "kept_keys")
    for table in (*tables, "sessions", "locks", "lock_places", "store", "store_roots", "items"):
        holder.execute(f"SELECT FROM pgsched.{table} FOR UPDATE".encode())
    bob.execute("SET lock_timeout = '300ms'")
    for call in REFUSED.values():
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            bob.execute(f"SELECT * FROM pgsched.{call}".format(**ids).encode())
    for call in NOTHING.values():
        bob.execute(f"SELECT * FROM pgsched.{call}".format(**ids).encode())


def test_a_run_without_an_owner_is_locked_and_marked_for_no_login_but_an_operator(
    logins: Logins, db: psycopg.Connection
) -> None:
    """Such runs were made before the roles; who reads them may be a viewer."""
    run = one(db, "SELECT pgsched.enqueue('t')")
    db.execute("UPDATE pgsched.runs SET owner = NULL")
    marked = "SELECT awaited FROM pgsched.runs"
    for who in ("bob", "eye"):
        assert one(logins.connect(who), "SELECT await_runs(ARRAY[%s]::bigint[])", run) == 0
        assert one(db, marked) is None, who
    one(logins.connect("ops"), "SELECT await_runs(ARRAY[%s]::bigint[])", run)
    assert one(db, marked) is True
