"""Every reader marks JSON that PostgreSQL accepts and Python cannot read as unreadable, and goes on.

Invariant: the rows here have such JSON in every JSON column. A test fails when a new JSON column is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError
from pgsched.db.connection.connect import aconnect, connect
from pgsched.db.queries.runs import dependencies
from tests.support.db.pruning import count, keep
from tests.support.hostile.poison import COLUMNS, POISONS, poison, poisonable
from tests.support.logins import one

Call = Callable[..., Any]
READERS = """
run show {run}
run show {run} --json
run show {child} --json
run list
run list --json
run tree {child} --json
run logs {run}
job show poisoned
job show poisoned --json
job list --json
job pause poisoned
job resume poisoned
job run poisoned
job update poisoned --set priority=4
job calendar poisoned list
explain poisoned
calendar list --json
alerts defaults --json
export
backfill list --json
queue list --json
limit list --json
retention show --json
alerts --json
audit --json
lock list --all
lock list --json
lock show poisoned
lock show poisoned --json
election list
election list --json
status --json
doctor --json
check
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("name", POISONS)
def test_every_command_reads_every_row(pgsched: Call, db: psycopg.Connection[Any], name: str) -> None:
    made = poison(db, POISONS[name])
    wrong = {}
    for line in READERS.strip().splitlines():
        said = pgsched(*line.format(**made).split())
        refused = (
            said.code == 2 and said.err == "error: args: nested more than 200 deep\n"
        )  # a trigger refuses the edit
        if not refused and (said.code not in (0, 1) or "Traceback" in said.err or "bug" in said.err):
            wrong[line] = (said.code, said.err[-500:])
    assert wrong == {}
    assert "cannot be read" in pgsched("run", "show", str(made["run"])).out


def test_every_column_of_json_is_poisoned(db: psycopg.Connection[Any]) -> None:
    assert poisonable(db) == COLUMNS


@pytest.mark.parametrize("name", POISONS)
def test_an_archive_file_takes_json_that_python_cannot_read(
    pgsched: Call, db: psycopg.Connection[Any], tmp_path: Path, name: str
) -> None:
    file = tmp_path / "runs.jsonl"
    keep(db, any="1 hour")
    for n in range(2):
        made = poison(db, POISONS[name])
        db.execute("SET session_replication_role = replica")
        db.execute("UPDATE pgsched.runs SET state = 'succeeded', phase = 3, job_id = NULL, scheduled_at = NULL,"
                   " finished_at = clock_timestamp() - interval '1 day' WHERE id = %s", [made["run"]])  # fmt: skip
        db.execute("DELETE FROM pgsched.runs WHERE id <> %s", [made["run"]])
        db.execute("RESET session_replication_role")
        count(db)
        said = pgsched("prune", "--archive", str(file))  # the second time, prune reads the last lines first
        assert said.code == 0, said.err
        assert len(file.read_text().splitlines()) == n + 1
        ids = db.execute("SELECT jsonb_path_query(line::jsonb, '$.id')::int FROM unnest(%s::text[]) line",
                         [file.read_text().splitlines()]).fetchall()  # fmt: skip
        assert ids[-1] == (made["run"],), "each line is JSON, as PostgreSQL reads it"


def test_a_program_gets_an_error_for_a_result_that_it_cannot_read(
    app: App, dsn: str, db: psycopg.Connection[Any]
) -> None:
    made = poison(db, POISONS["a long number"])
    key = one(db, "SELECT idempotency_key FROM pgsched.runs WHERE id = %s", made["run"])
    with connect(dsn) as conn, pytest.raises(InputError, match=r"^result: Python cannot read this JSON"):
        dependencies.parents(conn, made["child"])
    with pytest.raises(InputError, match=r"^result: Python cannot read this JSON"):
        app.first_result(key)
    deep = "[" * 300 + "]" * 300
    db.execute("SET session_replication_role = replica")
    db.execute("UPDATE pgsched.runs SET result = %s WHERE id = %s", [deep, made["run"]])
    with connect(dsn) as conn:
        (parent,) = dependencies.parents(conn, made["child"])
    assert json.dumps(parent.result) == deep, "what can be read, though not shown, is what was returned"


def test_the_store_is_listed_and_watched_and_items_are_got(app: App, db: psycopg.Connection[Any]) -> None:
    """Only a program that asks for one value gets an error."""
    poison(db, POISONS["a long number"])
    assert ["cannot be read" in entry.value for entry in app.kv.list("poisoned")] == [True, True]
    with app.watch("poisoned", since=0, timeout=10) as watch:
        app.kv.put("poisoned/b", 1)
        changes = [next(watch) for _ in range(3)]
    assert ["cannot be read" in str(change.value) for change in changes] == [True, True, False]
    with pytest.raises(InputError, match=r"^value: Python cannot read this JSON"):
        app.kv.get("poisoned/a")
    queue = app.item_queue("poisoned", timeout=0)
    for item in (queue.get(), queue.get()):
        with pytest.raises(InputError, match="Python cannot read this JSON"):
            _ = item.value
        item.consume()
    assert queue.count() == 0


def test_sync_and_async_connections_mark_unreadable_json(dsn: str) -> None:
    async def read() -> str:
        async with await aconnect(dsn) as conn:
            return str(await (await conn.execute("SELECT '1e5000'::jsonb")).fetchone())

    with connect(dsn) as conn:
        assert "cannot be read" in str(conn.execute("SELECT '1e5000'::jsonb").fetchone())
    assert "cannot be read" in asyncio.run(read())
