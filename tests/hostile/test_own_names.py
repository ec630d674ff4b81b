"""An application may have tables with names of pgsched's tables. Neither side uses the tables of the other."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgsched.db.schema.migrate import upgrade
from pgsched.errors import InputError
from tests.support.hostile.short_life import live, ours
from tests.support.logins import one

pytestmark = pytest.mark.pg14

NAMES = """
    SELECT DISTINCT relname FROM pg_class WHERE relnamespace = 'pgsched'::regnamespace AND relkind IN ('r', 'v', 'S')
    ORDER BY 1"""


def names(db: psycopg.Connection[Any]) -> list[str]:
    return [name for (name,) in db.execute(NAMES.encode()).fetchall()]


def columns(db: psycopg.Connection[Any]) -> list[Any]:
    """Return the columns of the tables in public."""
    return db.execute("SELECT relname, attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND attnum > 0"
                      " WHERE relnamespace = 'public'::regnamespace ORDER BY 1, 2").fetchall()  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("path", ['"$user", public', "public, pgsched"])
def test_tables_with_names_of_pgsched_are_neither_read_nor_written(
    path: str, dsn: str, db: psycopg.Connection[Any]
) -> None:
    """This holds for handlers' transactions as well, which have the search path of the database."""
    theirs = names(db)
    for name in theirs:
        db.execute(sql.SQL("CREATE TABLE public.{} (mine text NOT NULL)").format(sql.Identifier(name)))
        db.execute(sql.SQL("INSERT INTO public.{} VALUES ('all')").format(sql.Identifier(name)))
    before = columns(db)
    db.execute(f'ALTER DATABASE "{db.info.dbname}" SET search_path = {path}'.encode())
    with ours(dsn) as own:
        life = live(own, worker_dsn=dsn, operator_dsn=dsn, producer_dsn=dsn)
    assert life.said == []
    assert [column for column in columns(db) if column != ("rows", "n")] == before
    for name in theirs:
        assert one(db, f"SELECT string_agg(mine, ' ') FROM public.\"{name}\"") == "all"


def test_by_default_no_unqualified_name_means_a_table_of_pgsched(empty_dsn: str) -> None:
    upgrade(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        found = names(db)
        for name in found:
            assert one(db, "SELECT to_regclass(%s)", name) is None
            db.execute(sql.SQL("CREATE TABLE {} (mine int)").format(sql.Identifier(name)))
            for _ in range(2):
                db.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(sql.Identifier(name)))
        assert names(db) == found


def test_set_search_path_is_refused_beside_tables_of_the_same_names(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute("CREATE TABLE public.workers (mine int)")
        db.execute("CREATE SCHEMA elsewhere CREATE TABLE jobs (mine int)")
        with pytest.raises(InputError, match=r"of its own of these names \(workers\)"):
            upgrade(empty_dsn, set_search_path=True)
        assert one(db, "SELECT to_regclass('pgsched.jobs')") is None, "nothing was done"
        db.execute("DROP TABLE public.workers")
        upgrade(empty_dsn, set_search_path=True)
    with psycopg.connect(empty_dsn) as db:
        assert one(db, "SELECT to_regclass('jobs')::text") == "jobs"
