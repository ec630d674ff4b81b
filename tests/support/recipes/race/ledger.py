"""The ledger of a race: what processes did, and what became of locks, items, keys and sessions, in one order.

Processes write what they do. Triggers write what the database does, in the transactions that do it. One sequence
numbers all of it. So of two transactions that cannot overlap, all numbers of the later one are higher.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn

import psycopg

from pgsched import DatabaseUnreachable, LeaseLost
from pgsched.errors import LockTimeout

Db = psycopg.Connection[Any]
AWAY = (psycopg.OperationalError, psycopg.InterfaceError)  # the connection is cut, or the server is restarted
# what a program has to expect of pgsched and of its own connections while servers are restarted and processes frozen
EXPECTED = (LeaseLost, TimeoutError, DatabaseUnreachable, LockTimeout, *AWAY)

TABLES = """
CREATE SCHEMA race;
CREATE SEQUENCE race.seq;
CREATE TABLE race.over (what text PRIMARY KEY);
-- locks: what holders wrote in transactions that assert the grant (expired: its lease was over before); and the grants
-- (passed: the place of one that waited before)
CREATE TABLE race.writes (seq bigint DEFAULT nextval('race.seq') PRIMARY KEY, lock text, fence bigint, mode text,
    hold uuid, what text, pid integer, expired boolean);
CREATE TABLE race.grants (seq bigint DEFAULT nextval('race.seq') PRIMARY KEY, lock text, fence bigint, mode text,
    what text, passed bigint);
-- sessions that were ended, and until when their lease went
CREATE TABLE race.ends (seq bigint DEFAULT nextval('race.seq') PRIMARY KEY, name text, ended_at timestamptz,
    lease_until timestamptz);
-- items: what producers put (sure: it is there), what consumers consumed in the same transaction, and each change
CREATE TABLE race.puts (key text PRIMARY KEY, sure boolean);
CREATE TABLE race.consumed (seq bigint DEFAULT nextval('race.seq') PRIMARY KEY, item bigint, key text, pid integer);
CREATE TABLE race.changes_of_items (seq bigint DEFAULT nextval('race.seq') PRIMARY KEY, item bigint, key text,
    what text, session bigint, token uuid, error text, has_ended boolean, holder text);
-- watches: each change under a root, and what watchers saw
CREATE TABLE race.changes (version bigint PRIMARY KEY, key text, value jsonb);
CREATE TABLE race.seen (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, watcher text, version bigint, key text,
    kind text, value jsonb, UNIQUE (watcher, version));

-- double barriers: who came in and went out, which rounds opened (with whom) and were over; and what members noticed
CREATE TABLE race.rounds (seq bigint DEFAULT nextval('race.seq') PRIMARY KEY, what text, member text, size integer,
    members text[]);
CREATE TABLE race.passed (seq bigint DEFAULT nextval('race.seq') PRIMARY KEY, member text, what text);

CREATE FUNCTION race.note_grant() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP <> 'DELETE' AND NEW.fence IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.fence IS NULL) THEN
        INSERT INTO race.grants (lock, fence, mode, what, passed) VALUES (NEW.lock, NEW.fence, NEW.mode, 'granted', (
            SELECT min(q.place) FROM pgsched.lock_places q JOIN pgsched.sessions s ON s.id = q.session
            WHERE q.lock = NEW.lock AND q.place < NEW.place AND q.fence IS NULL AND q.left_at IS NULL
              AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()
              AND coalesce(q.give_up_at > clock_timestamp(), true)));
    ELSIF TG_OP = 'DELETE' AND OLD.fence IS NOT NULL THEN
        INSERT INTO race.grants (lock, fence, mode, what) VALUES (OLD.lock, OLD.fence, OLD.mode, 'gone');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER race AFTER INSERT OR UPDATE OR DELETE ON pgsched.lock_places
    FOR EACH ROW EXECUTE FUNCTION race.note_grant();

CREATE FUNCTION race.note_end() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO race.ends (name, ended_at, lease_until) VALUES (NEW.name, NEW.ended_at, OLD.lease_until);
    RETURN NULL;
END $$;
CREATE TRIGGER race AFTER UPDATE ON pgsched.sessions FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION race.note_end();

CREATE FUNCTION race.note_item() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO race.changes_of_items (item, key, what) VALUES (NEW.id, NEW.value #>> '{}', 'put');
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO race.changes_of_items (item, key, what, session, token, holder)
        VALUES (OLD.id, OLD.value #>> '{}', 'deleted', OLD.session, OLD.token, (
            SELECT s.name FROM pgsched.sessions s WHERE s.id = OLD.session));
    ELSIF NEW.session IS NULL AND OLD.session IS NOT NULL THEN
        INSERT INTO race.changes_of_items (item, key, what, session, token, error, has_ended)
        VALUES (NEW.id, NEW.value #>> '{}', 'freed', OLD.session, OLD.token,
            CASE WHEN NEW.attempt = OLD.attempt THEN NEW.error END, NOT EXISTS (  -- else it was given back without one
            SELECT FROM pgsched.sessions s WHERE s.id = OLD.session AND s.ended_at IS NULL));
    ELSIF NEW.session IS NOT NULL THEN
        INSERT INTO race.changes_of_items (item, key, what, session, token)
        VALUES (NEW.id, NEW.value #>> '{}', 'held', NEW.session, NEW.token);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER race AFTER INSERT OR UPDATE OR DELETE ON pgsched.items FOR EACH ROW EXECUTE FUNCTION race.note_item();

CREATE FUNCTION race.note_round() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(NEW.key, OLD.key) ~ '/barrier$' THEN
        IF TG_OP <> 'DELETE' AND (NEW.value ->> 'open')::boolean THEN
            INSERT INTO race.rounds (what, size, members) SELECT 'opened', (NEW.value ->> 'size')::integer, ARRAY(
                SELECT k.value #>> '{}' FROM pgsched.store k
                WHERE starts_with(k.key, NEW.key || '/') AND pgsched.session_lives(k.session));
        ELSIF TG_OP = 'DELETE' THEN
            INSERT INTO race.rounds (what) VALUES ('over');
        END IF;
    ELSIF TG_OP <> 'UPDATE' AND coalesce(NEW.key, OLD.key) ~ '/barrier/' THEN
        INSERT INTO race.rounds (what, member)
        VALUES (CASE TG_OP WHEN 'INSERT' THEN 'in' ELSE 'out' END, coalesce(NEW.value, OLD.value) #>> '{}');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER race AFTER INSERT OR UPDATE OR DELETE ON pgsched.store FOR EACH ROW EXECUTE FUNCTION race.note_round();

CREATE FUNCTION race.note_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO race.changes VALUES (NEW.version, NEW.key, NEW.value);
    RETURN NULL;
END $$;
CREATE TRIGGER race AFTER INSERT ON pgsched.store_changes FOR EACH ROW EXECUTE FUNCTION race.note_change();
"""


@contextmanager
def committing(conn: Db) -> Iterator[None]:
    """Commit what the block does. Raises OperationalError where it is not known whether it was committed."""
    try:
        with conn.transaction():
            yield
    except psycopg.InternalError as error:
        raise_lost(conn, error)


@asynccontextmanager
async def committing_async(conn: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """Commit what the block does: the asyncio form of `committing`."""
    try:
        async with conn.transaction():
            yield
    except psycopg.InternalError as error:
        raise_lost(conn, error)


def raise_lost(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], error: psycopg.InternalError) -> NoReturn:
    """Raise that a connection is lost, where PgBouncer has sent an error of another one as a second answer."""
    if error.sqlstate is not None:
        raise error
    conn.pgconn.finish()
    raise psycopg.OperationalError(f"the pooler has lost its connection: {error}") from error


def note(error: BaseException) -> None:
    """Write an error that was expected into the log of this process."""
    print(f"{time.time():.3f} {type(error).__name__}: {error}".partition("\n")[0], flush=True)


def own_name() -> str:
    """Return a name for connections that ends with the process id, as those of sessions do."""
    return f"race ledger:{os.getpid()}"


class Ledger:
    """A connection to the ledger, opened again after it was cut."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._conn: Db | None = None

    @property
    def conn(self) -> Db:
        """Return the connection, which commits each statement. Raises OperationalError while the server is away."""
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = psycopg.connect(
                self._dsn, autocommit=True, prepare_threshold=None, application_name=own_name()
            )
        return self._conn

    def is_over(self, what: str) -> bool:
        """Return whether the test has ended this part of the race; False while the server is away."""
        try:
            return self.conn.execute("SELECT FROM race.over WHERE what = %s", [what]).rowcount > 0
        except AWAY:
            time.sleep(0.1)
            return False
