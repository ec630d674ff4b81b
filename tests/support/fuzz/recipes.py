"""Rows of the recipes for fuzzed calls to meet, and for each of their functions a call that is accepted.

The functions are those that docs and clients name.
"""

from __future__ import annotations

TOKEN = "00000000-0000-0000-0000-000000000001"
# A session with a lock, a key and an item; a semaphore with its waiters; a lock whose holder was not renewed in time.
ROWS = f"""
SELECT pgsched.session_open('{TOKEN}', '1 hour', 's');
SELECT pgsched.lock_acquire('every', '{TOKEN}', session => '{TOKEN}');
SELECT pgsched.lock_acquire('every', gen_random_uuid(), wait => '1 hour');
SELECT pgsched.lock_acquire('limited', gen_random_uuid(), wait => '1 hour', capacity => 1) FROM generate_series(1, 3);
SELECT pgsched.lock_acquire('full', gen_random_uuid());
UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE id = (SELECT max(id) FROM pgsched.sessions);
SELECT pgsched.kv_put('taken', '1');
SELECT pgsched.kv_put('taken/bound', '{{"x": 1}}', session => '{TOKEN}');
SELECT pgsched.kv_put('kept', '"a"');
SELECT pgsched.item_put('every', '{{"x": 1}}');
SELECT pgsched.item_put('every', '[1]', delay => '1 day');
SELECT pgsched.item_get('every', '{TOKEN}', session => '{TOKEN}', max_attempts => 2);
SELECT pgsched.item_put('every', 'null');
SELECT pgsched.grant_names('default', 'pg_read_all_data');
"""
SESSION = {"token": TOKEN, "ttl": "1 minute", "name": "s"}
LOCK = {"name": "every", "token": TOKEN, "fence": "1", "session": TOKEN, "tokens": f"{{{TOKEN}}}"}
LIST = {"prefix": "taken", "after": "", "most": "10", "since": "0", "name": "every", "kind": "lock"}
KEY = {"key": "taken/a", "value": "1", "amount": "1", "expected": "0", "session": TOKEN}
BARRIER = {"name": "every", "token": TOKEN, "size": "2", "session": TOKEN, "round": "1", "note": "1"}
ITEM = {
    "name": "every", "item": "1", "items": "{1}", "priority": "100", "delay": "0", "token": TOKEN, "session": TOKEN,
    "hold": "1 minute", "most": "1", "max_attempts": "3", "wait": "false", "id": "1", "ids": "{1}",
    "tokens": f"{{{TOKEN}}}",
}  # fmt: skip
NODE = {"parent": "taken", "name": "b", "key": "taken", "value": '"a"', "expected": "0", "sequence": "false"}
# The values are repeated so often among hostile ones that some whole calls are accepted.
SANE = {
    "session_open": SESSION,
    "session_renew": SESSION,
    "session_end": SESSION,
    "session_leases": LOCK,
    "lock_acquire": LOCK | {"ttl": "1 minute", "wait": "0", "mode": "exclusive", "note": "x", "kind": "lock"},
    "lock_release": LOCK,
    "lock_renew": LOCK,
    "lock_break": LOCK,
    "assert_lock": LOCK,
    "lock_line": LIST,
    "lock_list": LIST,
    "grant_names": {"prefix": "default", "role": "pg_read_all_data"},
    "revoke_names": {"prefix": "default", "role": "pg_read_all_data"},
    "restored": {},
    "kv_put": KEY,
    "kv_delete": KEY,
    "kv_add": KEY | {"key": "taken"},
    "kv_get": KEY,
    "kv_list": LIST,
    "kv_changes": LIST,
    "barrier_enter": BARRIER,
    "barrier_leave": BARRIER,
    "barrier_withdraw": BARRIER,
    "item_put": ITEM,
    "item_put_many": ITEM,
    "item_get": ITEM,
    "item_consume": ITEM,
    "item_consume_many": ITEM,
    "item_give_back": ITEM,
    "item_extend": ITEM,
    "item_leave": ITEM,
    "item_counts": ITEM,
    "node_create": NODE,
    "node_read": NODE,
    "node_set": NODE,
    "node_delete": NODE,
    "node_prune": NODE,
    "node_roots": NODE,
}
