"""`pgsched job mode`, and how commands show a job in mode shadow."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from tests.support.cli.said import Said
from tests.support.db.passing import add, lead


def test_the_mode_is_changed_by_a_verb(db: psycopg.Connection, pgsched: Callable[..., Said]) -> None:
    add(db, schedule="@every 1h")
    said = pgsched("job", "mode", "a", "shadow")
    assert said.out == "job a is in mode shadow: its slots are recorded, and nothing runs\n"
    assert pgsched("job", "mode", "a", "run").out == "job a runs its slots\n"
    assert pgsched("job", "mode", "a", "run", "--json").json["mode"] == "run"
    wrong = pgsched("job", "mode", "a", "shade")
    assert (wrong.code, wrong.err) == (2, 'error: mode: "shade" is not one of run, shadow\n')
    assert pgsched("job", "mode", "b", "run").code == 8


def test_commands_show_the_mode(db: psycopg.Connection, pgsched: Callable[..., Said]) -> None:
    add(db, schedule="@every 1h", mode="shadow")
    lead(db)
    line = pgsched("job", "list").out.splitlines()[1].split()
    assert line == ["a", "shadow", "@every", "1h", "UTC", "-", "-", "t"]
    assert "mode" in pgsched("job", "show", "a").out
    assert "in mode shadow" in pgsched("job", "preview", "a").out
    assert ", 1 in mode shadow" in pgsched("status").out
    assert pgsched("job", "list", "--state", "shadow", "--json").json[0]["mode"] == "shadow"
    made = pgsched("job", "add", "b", "--task", "t", "--schedule", "@daily", "--set", "mode=shadow")
    assert made.out == "created job b: task t, schedule @daily (UTC), shadow\n"
