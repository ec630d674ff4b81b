"""Members of a party see each other, from join to leave, over reconnects, and after a crash until their ttl is over."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pgsched import App
from pgsched.chaos.site.proxy import Proxy
from pgsched.errors import InputError, LeaseLost
from pgsched.recipes.party import Party
from tests.support.recipes.bound_keys import (
    Db,
    change_function,
    cut_connections,
    number,
    open_session,
    put_bound,
)
from tests.support.sessions import BLOCKED
from tests.support.waiting import wait_until


def data_of(app: App) -> list[Any]:
    return sorted((member.data for member in app.party("p").members()), key=str)


def test_members_see_each_other_with_their_data(app: App, dsn: str) -> None:
    other = App("other", dsn=dsn)
    first, second = app.party("p", data={"host": "a"}), other.party("p")
    assert first.members() == [] and first.id is None
    first.join()
    second.join([2])
    members = {member.id: member.data for member in app.party("p").members()}
    assert members == {first.id: {"host": "a"}, second.id: [2]}
    first.leave()
    assert data_of(other) == [[2]], "a clean leave is seen at once"
    other.close()
    assert data_of(app) == [], "and so is the end of an App"


def test_a_block_joins_and_leaves(app: App) -> None:
    with app.party("p", data=1) as party, app.party("p", data=2):
        assert len(party.members()) == 2
    assert party.members() == []


def test_an_object_is_one_member(app: App) -> None:
    party = app.party("p")
    with pytest.raises(InputError, match="no member"):
        party.leave()
    party.join()
    with pytest.raises(InputError, match="is a member"):
        party.join()
    party.leave()
    party.join()
    assert len(party.members()) == 1


def test_a_member_whose_process_was_killed_is_gone_after_its_ttl(app: App, db: Db) -> None:
    party = app.party("p", data="alive").join()
    put_bound(db, f"{party.prefix}dead", open_session(db), '"dead"')
    with app.watch(party.prefix, timeout=20) as watch:
        assert data_of(app) == ["alive", "dead"]
        change = next(watch)
        assert (change.kind, change.key) == ("deleted", f"{party.prefix}dead")
    assert data_of(app) == ["alive"]


def test_a_member_survives_a_reconnect(app: App, db: Db) -> None:
    party = app.party("p", ttl=2).join()
    lease = number(db, "SELECT lease_until FROM pgsched.sessions")
    assert cut_connections(db, "leases") == 1
    cut_connections(db, "enqueue")
    wait_until(lambda: number(db, "SELECT lease_until FROM pgsched.sessions") > lease, 10, "a renewal")
    assert not party.lost
    assert [member.id for member in party.members()] == [party.id]


def test_a_member_that_was_not_renewed_knows_it(app: App, db: Db) -> None:
    party = app.party("p", ttl=2).join()
    db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp()")
    wait_until(lambda: party.lost, 10)
    assert party.members() == []
    with pytest.raises(LeaseLost):
        party.leave()
    with pytest.raises(LeaseLost), app.party("p", ttl=2) as party:
        db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp() WHERE ended_at IS NULL")
        wait_until(lambda: party.lost, 10)
        assert len(party.join().members()) == 1, "it may join again"
        db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp() WHERE ended_at IS NULL")
        wait_until(lambda: party.lost, 10)


def test_a_session_that_the_database_has_ended_is_replaced(app: App, db: Db) -> None:
    party = app.party("p", ttl=60).join()
    db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp()")
    assert len(app.party("p", ttl=60).join().members()) == 1
    wait_until(lambda: party.lost, 10)


def test_a_forked_process_does_not_take_its_parent_s_member_away(app: App) -> None:
    party = app.party("p").join()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if party.lost and leaves_nothing(party) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(party.members()) == 1 and not party.lost


def leaves_nothing(party: Party) -> bool:
    try:
        party.leave()
    except LeaseLost:
        return True
    return False


def test_a_party_in_asyncio(app: App) -> None:
    async def main() -> None:
        async with app.party("p", data=1) as party:
            assert [member.data for member in await party.members_async()] == [1]
            with pytest.raises(ZeroDivisionError):
                async with app.party("p"):
                    raise ZeroDivisionError
        assert await party.members_async() == []

    asyncio.run(main())


def test_a_member_whose_call_was_cut_does_not_come_back_when_it_has_left(app: App, dsn: str, db: Db) -> None:
    """The call is repeated. Only after the member has left, the server does the first call."""
    guard = "PERFORM pgsched.check_value(value);"
    first_waits = "PERFORM pg_advisory_xact_lock_shared(7) WHERE pg_try_advisory_xact_lock(8);"
    change_function(db, "kv_put", guard, guard + first_waits)
    waiting = f"{BLOCKED} AND wait_event = 'advisory'"
    with Proxy(dsn) as proxy, ThreadPoolExecutor(1) as thread:
        far = App("far", dsn=proxy.dsn)
        db.execute("SELECT pg_advisory_lock(7)")
        joining = thread.submit(far.party("p", ttl=3600).join)
        wait_until(lambda: number(db, waiting) == 1, 30, "the call to be held up")
        proxy.cut()
        joining.result(30).leave()
        db.execute("SELECT pg_advisory_unlock(7)")
        written = "SELECT count(*) FROM pgsched.store_changes WHERE value IS NOT NULL"
        wait_until(lambda: number(db, written) == 2, 30, "the late call")
        wait_until(lambda: app.party("p").members() == [], 60, "what it has written to be deleted")
        far.close()
