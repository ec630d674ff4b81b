"""Values with versions: put, get, compare-and-set, list, update, count; keys that go with a session; whose a key is."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.errors import InputError, NotPermitted
from tests.support.logins import Logins
from tests.support.recipes.bound_keys import Db, number, open_session, put_bound, put_many
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection[Any]]


def test_a_key_has_a_value_a_version_and_a_revision(app: App) -> None:
    assert app.kv.get("app/a") is None
    assert app.kv.put("app/a", {"x": [1, None, "ü"]}) == 1
    assert app.kv.put("app/b", None) == 2
    assert app.kv.put("app/a", 2.5) == 3
    entry, null = app.kv.get("app/a"), app.kv.get("app/b")
    assert entry is not None
    assert (entry.key, entry.value, entry.version, entry.revision, entry.bound) == ("app/a", 2.5, 3, 2, False)
    assert entry.changed_at.tzinfo is not None
    assert null is not None and null.value is None
    assert app.kv.put("other", 1) == 1, "versions are those of the first element of a key"


def test_a_deleted_key_is_gone_and_its_version_never_comes_back(app: App) -> None:
    first = app.kv.put("a", 1)
    assert app.kv.delete("a") and not app.kv.delete("a")
    assert app.kv.get("a") is None
    second = app.kv.put("a", 1)
    entry = app.kv.get("a")
    assert entry is not None and entry.revision == 1 and second is not None and first is not None and second > first
    assert app.kv.put("a", 2, expected=first) is None


def test_a_key_is_written_and_deleted_only_if_it_has_the_expected_version(app: App) -> None:
    version = app.kv.put("a", 1, expected=0)
    assert version is not None
    assert app.kv.put("a", 2, expected=0) is None
    assert app.kv.put("a", 2, expected=version + 1) is None
    assert not app.kv.delete("a", expected=version + 1)
    assert app.kv.put("a", 3, expected=version) == version + 1
    assert app.kv.delete("a", expected=version + 1)


def test_of_many_who_compare_and_set_the_same_version_one_wins(app: App) -> None:
    value = app.value("v")
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            entry = value.entry()
            version = 0 if entry is None else entry.version
            done = list(pool.map(lambda n, v=version: (n, value.compare_and_set(v, n)), range(8)))  # type: ignore[misc]
            (winner,) = [n for n, changed in done if changed is not None]
            assert value.get() == winner


def test_a_transaction_with_an_older_snapshot_fails_instead_of_deciding_by_it(app: App, connect: Open) -> None:
    version = app.kv.put("a", 1)
    with connect(autocommit=False) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT 1")
        app.kv.put("a", 2)
        with pytest.raises(psycopg.errors.SerializationFailure):
            other.execute("SELECT pgsched.kv_put('a', '3', %s)", [version])


def test_update_is_computed_anew_until_nobody_has_changed_the_value_meanwhile(app: App) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: app.value("list").update(lambda found: [*found, 1], default=[]), range(40)))
    assert app.value("list").get() == [1] * 40
    assert app.value("none").get("default") == "default"


def test_a_counter_loses_no_addition(app: App) -> None:
    with ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda _: app.counter("hits").add(), range(200)))
    assert app.counter("hits").value() == 200
    assert sorted(sums) == [*range(1, 201)]


def test_a_counter_is_exact(app: App) -> None:
    counter = app.counter("c")
    assert counter.value() == 0
    assert [counter.add(0.1) for _ in range(3)][-1] == Decimal("0.3")
    assert counter.value() == Decimal("0.3")
    assert counter.add(Decimal("-0.3")) == 0 and isinstance(counter.value(), int)
    assert counter.add(10**50) == 10**50
    assert counter.value() == 10**50


@pytest.mark.parametrize("amount", [math.nan, math.inf, True, "1", None, Decimal("sNaN"), 10**1001, Decimal("1e-1001")])
def test_only_a_finite_number_is_added(app: App, amount: Any) -> None:
    with pytest.raises(InputError, match=r"^amount: "):
        app.counter("c").add(amount)


def test_nothing_is_added_to_what_is_no_number(app: App) -> None:
    app.kv.put("text", "1")
    for call in (app.counter("text").add, app.counter("text").value):
        with pytest.raises(InputError, match=r"no number"):
            call()


@pytest.mark.parametrize("value", [object(), math.nan, "\0", "\ud800", {1: {2, 3}}, "x" * 65536])
def test_a_value_that_cannot_be_stored_is_refused_by_name(app: App, value: Any) -> None:
    with pytest.raises(InputError, match=r"^value: "):
        app.kv.put("a", value)
    with pytest.raises(InputError, match=r"^data: "):
        app.party("p", data=value)
    assert app.kv.list() == []


def test_the_longest_value_is_stored(app: App) -> None:
    assert app.kv.put("a", "x" * 65534)
    with pytest.raises(InputError, match=r"^value: expected JSON of at most 64 KiB"):
        app.kv.put("a", [0] * 30000)  # as jsonb shows it, with spaces


@pytest.mark.parametrize("key", ["", "/a", "a\n", " a", "x" * 257, 7])
def test_a_key_that_is_none_is_refused(app: App, key: Any) -> None:
    for call in (app.kv.get, app.kv.delete, lambda key: app.kv.put(key, 1), app.watch):
        with pytest.raises(InputError, match=r"^(key|prefix): "):
            next(call(key))


def test_keys_are_listed_by_prefix_in_the_order_of_their_characters(app: App) -> None:
    keys = ["a", "a!", "a/", "a/x", "a/\ud7ff", "a/\ud7ff1", "a/\U0010ffff", "a0", "b", "ä/1"]
    for key in reversed(keys):
        app.kv.put(key, key)
    assert [entry.key for entry in app.kv.list()] == sorted(keys)
    for prefix in ("a", "a/", "a/\ud7ff", "a/\U0010ffff", "ä", "ä/", "c", "a!"):
        expected = [key for key in sorted(keys) if key.startswith(prefix)]
        assert [entry.key for entry in app.kv.list(prefix)] == expected, prefix
    assert [entry.value for entry in app.kv.list("a", after="a!", limit=2)] == ["a/", "a/x"]


@pytest.mark.long
def test_a_long_list_is_read_in_pages(app: App, db: Db) -> None:
    put_many(db, "app/", 2100)
    assert sorted(entry.value for entry in app.kv.list("app/")) == [*range(1, 2101)]
    assert len(app.kv.list("app/", limit=1500)) == 1500


@pytest.mark.long
def test_the_last_thousand_changes_are_kept(app: App, db: Db) -> None:
    put_many(db, "app/", 3000)
    assert 1000 <= number(db, "SELECT count(*) FROM pgsched.store_changes") < 1100


def test_keys_under_one_first_element_are_bounded(app: App, db: Db) -> None:
    app.kv.put("app/a", 1)
    db.execute("UPDATE pgsched.store_roots SET keys = 100000")
    with pytest.raises(InputError, match=r"100000 keys"):
        app.kv.put("app/b", 1)
    assert app.kv.put("app/a", 2)


def test_a_bound_key_goes_with_the_app(app: App, dsn: str) -> None:
    other = App("other", dsn=dsn)
    other.kv.put("a", 1, bound=True)
    other.kv.put("b", 1, bound=True)
    other.kv.put("b", 2)
    entry = app.kv.get("a")
    assert entry is not None and entry.bound
    other.close()
    assert [entry.key for entry in app.kv.list()] == ["b"]


def test_a_bound_key_goes_when_its_session_is_not_renewed(app: App, db: Db) -> None:
    put_bound(db, "a", open_session(db))
    put_bound(db, "b", open_session(db, "1 h"))
    wait_until(lambda: app.kv.get("a") is None, 5)
    assert [entry.key for entry in app.kv.list()] == ["b"]
    assert app.kv.put("a", 1, expected=0) == 3, "the deletion has a version, too"
    assert app.kv.get("b") is not None


def test_a_session_ends_while_a_key_is_bound_to_it(app: App, db: Db, connect: Open) -> None:
    session = open_session(db, "1 h")
    with connect(autocommit=False) as other:
        put_bound(other, "a", session)
        assert number(db, "SELECT pgsched.session_end(%s)", session) == 0
        other.commit()
    assert app.kv.get("a") is None
    with pytest.raises(psycopg.Error, match="the session has ended"):
        put_bound(db, "b", session)


def test_a_lock_is_given_back_although_keys_are_bound_to_its_session(db: Db) -> None:
    token = open_session(db, "1 h")
    assert number(db, "SELECT fence FROM pgsched.lock_acquire('l', %s)", token) is not None
    put_bound(db, "a", token)
    assert number(db, "SELECT pgsched.lock_release('l', %s)", token)


def test_a_session_of_many_keys_is_ended_in_parts(app: App, db: Db) -> None:
    session = open_session(db, "1 h")
    db.execute("SELECT count(pgsched.kv_put('r' || n, '1', session => %s)) FROM generate_series(1, 130) n", [session])
    assert number(db, "SELECT pgsched.session_end(%s)", session) == 30
    assert len(app.kv.list()) == 0, "none of them is to be seen any more"
    assert number(db, "SELECT pgsched.session_end(%s)", session) == 0
    assert number(db, "SELECT count(*) FROM pgsched.store") == 0


def test_versions_of_a_restored_database_are_those_of_no_time_before(app: App, db: Db) -> None:
    before = app.kv.put("a", 1)
    db.execute("SELECT pgsched.restored()")
    after = app.kv.put("a", 2)
    assert before is not None and after is not None and after > before + 2**32


def test_the_store_in_asyncio(app: App) -> None:
    async def main() -> None:
        assert await app.kv.put_async("a/1", 1) == 1
        assert await app.kv.put_async("a/2", 2, bound=True, ttl=5) == 2
        entry = await app.kv.get_async("a/2")
        assert entry is not None and entry.bound
        assert [entry.value for entry in await app.kv.list_async("a/")] == [1, 2]
        assert await app.kv.delete_async("a/1")
        assert await app.counter("c").add_async(2) == 2 == await app.counter("c").value_async()

        async def append(found: list[int]) -> list[int]:
            return [*found, 1]

        value = app.value("v")
        await asyncio.gather(*(value.update_async(append, default=[]) for _ in range(5)))
        assert await value.get_async() == [1] * 5
        entry = await value.entry_async()
        assert entry is not None and await value.compare_and_set_async(entry.version, 0) is not None
        assert await value.set_async(7) > entry.version

    asyncio.run(main())


def test_a_key_belongs_to_the_role_that_used_its_first_element_first(logins: Logins) -> None:
    alice, bob, ops, eye = (App(who, dsn=logins.dsn(who)) for who in ("alice", "bob", "ops", "eye"))
    alice.kv.put("hers/a", 1)
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: bob.kv.get("hers/a"),
        "put": lambda: bob.kv.put("hers/b", 1),
        "put bound": lambda: bob.kv.put("hers/b", 1, bound=True),
        "delete": lambda: bob.kv.delete("hers/a"),
        "list": lambda: bob.kv.list("hers/"),
        "add": lambda: bob.counter("hers/c").add(),
        "watch": lambda: next(bob.watch("hers/", timeout=0)),
        "party": lambda: bob.party("hers/p").join(),
        "barrier": lambda: bob.barrier("hers/b").set(),
        "double barrier": lambda: bob.double_barrier("hers/d", 1).enter(0),
        "viewer": lambda: eye.kv.put("hers/b", 1),
    }
    for name, call in calls.items():
        print(name)
        with pytest.raises(NotPermitted):
            call()
    assert bob.kv.list() == [] and bob.kv.list("her") == []
    bob.kv.put("his", 1)
    assert [entry.key for entry in bob.kv.list()] == ["his"]
    for reader in (ops, eye):
        assert [entry.key for entry in reader.kv.list()] == ["hers/a", "his"]
        assert reader.kv.get("hers/a") is not None
    ops.kv.put("hers/a", 2)
    for app in (alice, bob, ops, eye):
        app.close()


def test_an_operator_grants_a_part_of_the_keys(logins: Logins) -> None:
    alice, bob, ops = (App(who, dsn=logins.dsn(who)) for who in ("alice", "bob", "ops"))
    operator = logins.connect("ops")
    for role in ("alice", "bob"):
        operator.execute("SELECT grant_names('shared/both/', %s)", [logins.name(role)])
    operator.execute("SELECT grant_names('shared/bob/', %s)", [logins.name("bob")])
    alice.kv.put("shared/mine", 1)
    alice.kv.put("shared/both/a", 1)
    bob.kv.put("shared/both/b", 1)
    bob.kv.put("shared/bob/b", 1)
    with pytest.raises(NotPermitted):
        alice.kv.put("shared/bob/b", 2)
    with pytest.raises(NotPermitted):
        bob.kv.get("shared/mine")
    seen = {
        alice: ["shared/both/a", "shared/both/b", "shared/mine"],
        bob: ["shared/bob/b", "shared/both/a", "shared/both/b"],
    }
    seen[ops] = sorted({*seen[alice], *seen[bob]})
    for app, keys in seen.items():
        assert [entry.key for entry in app.kv.list("shared/")] == keys
        assert [entry.key for entry in app.kv.list()] == keys
        watch = app.watch("shared/", since=0)
        assert sorted(next(watch).key for _ in keys) == keys
        app.close()


def test_to_delete_what_is_not_there_takes_no_name(logins: Logins) -> None:
    alice, bob = (App(who, dsn=logins.dsn(who)) for who in ("alice", "bob"))
    assert not alice.kv.delete("name") and alice.double_barrier("name", 1).size == 1
    logins.connect("alice").execute("SELECT barrier_leave('name', gen_random_uuid(), 1)")
    assert bob.kv.put("name", 1) == 1
    alice.close()
    bob.close()
