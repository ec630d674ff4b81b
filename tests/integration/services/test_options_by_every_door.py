"""Each option of an enqueue, and each duration, means the same in Python, in SQL, on the command line and by HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import psycopg
import pytest
from psycopg.rows import dict_row

from pgsched import bucket
from pgsched.app.declarations import JobKeywords, check_policies
from pgsched.app.options import OptionKeywords, Options
from pgsched.cli import run_options
from pgsched.core.input_values import parse_duration
from pgsched.errors import InputError
from pgsched.services.runs.enqueueing import enqueue_by_name
from pgsched.web.api import enqueue_body
from pgsched.web.api.annotations import members
from tests.support.fleet import one

HINTS = get_type_hints(OptionKeywords)
DURATIONS = [name for name, hint in HINTS.items() if timedelta in members(hint)]
TEXTS = {
    "1h 30m": 5400, "10 minutes": 600, "90s": 90, "90 s": 90, "1 hour 30 minutes": 5400, "1 day": 86_400,
    "2 weeks": 1_209_600, "500ms": 0.5, "1 min": 60, "90": 90, "2.5": 2.5, "3 Hours": 10_800,
}  # fmt: skip
WRONG = ("soon", "10 parsecs", "", "-5m", "1h 30", "9" * 40 + "h", "m", "1e3")


def cli(given: dict[str, Any], _: str | None = None) -> Options:
    return run_options.read_options(given)


def http(given: dict[str, Any], key: str | None = None) -> Options:
    return enqueue_body.read_options(given, key)


def python(given: dict[str, Any], _: str | None = None) -> Options:
    return Options.named(given)


TEXT_DOORS: dict[str, Callable[..., Options]] = {"python": python, "cli": cli, "http": http}


@pytest.mark.parametrize("door", TEXT_DOORS)
@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_may_be_a_text(name: str, door: str) -> None:
    others = {"on_conflict": "replace"} if name == "debounce_max" else {}
    read = TEXT_DOORS[door]
    if door == "http" and name in enqueue_body.LEFT_OUT:
        return
    least = timedelta(seconds=1 if name == "idempotency_retention" else 0)
    for text, seconds in TEXTS.items():
        if timedelta(seconds=seconds) >= least:
            assert read({name: text, **others}).checked()[name] == timedelta(seconds=seconds), text
    for text in WRONG:
        with pytest.raises(InputError) as refused:
            read({name: text, **others}).checked()
        assert (refused.value.field or "").replace("-", "_") == name


def test_postgresql_reads_these_texts_as_the_other_doors_do(db: psycopg.Connection[Any]) -> None:
    for text, seconds in TEXTS.items():
        assert one(db, f"SELECT '{text}'::interval") == timedelta(seconds=seconds), text
    arguments = one(db, "SELECT pg_get_function_arguments('pgsched.enqueue'::regproc)")
    for name in {*DURATIONS} - {"wait_for_room"}:
        assert f"{name} interval" in arguments


def test_a_duration_of_a_job_and_of_a_setting_may_be_a_text() -> None:
    for name, hint in get_type_hints(JobKeywords).items():
        if timedelta in members(hint):
            found = check_policies({name: "1h 30m"})[name]
            assert found == ({"any": "5400 seconds"} if name == "keep" else timedelta(minutes=90))
    for text, seconds in TEXTS.items():
        if not text.replace(".", "").isdecimal():  # 7 could be days: a setting takes no number without its unit
            assert parse_duration("for", text) == timedelta(seconds=seconds)
    for text in (*WRONG, "0s", "90"):
        with pytest.raises(InputError):
            parse_duration("for", text)


AT = datetime(2031, 5, 1, 2, tzinfo=UTC)
KEY = {"unique_key": "k"}
PARENT = [9_999_999_999]
# option -> its value in Python, the text on the command line, the JSON value by HTTP, the literal in SQL; other options
SAME: dict[str, tuple[Any, Any, Any, str, dict[str, Any]]] = {
    **{name: (word, word, word, word, {}) for name, word in
       (("queue", "mail"), ("concurrency_key", "k"), ("unique_key", "k"), ("idempotency_key", "k"),
        ("backoff", "linear"))},
    **{name: (3, 3, 3, "3", {}) for name in ("priority", "max_attempts")},
    **{name: (timedelta(hours=1, minutes=30), "1h 30m", "1h 30m", "1h 30m", {}) for name in
       ("timeout", "delay", "kill_after", "backoff_base", "backoff_max", "expires", "keep")},
    "backoff_jitter": (0.5, 0.5, 0.5, "0.5", {}),
    "tags": (["a", "b"], ["a", "b"], ["a", "b"], "{a,b}", {}),
    "at": (AT, "2031-05-01T02:00Z", "2031-05-01 02:00Z", "2031-05-01 02:00Z", {}),
    "unique_by": (("n",), ["n"], ["n"], "{n}", {}),
    "unique_scope": (bucket(5400), "bucket(1h 30m)", "bucket(1h 30m)", "bucket(1h 30m)", KEY),
    "on_conflict": ("keep_time", "keep_time", "keep_time", "keep_time", KEY),
    "debounce_max": (600, "10 minutes", "10m", "10 minutes", {**KEY, "on_conflict": "replace"}),
    "idempotency_retention": (timedelta(hours=2), "2h", "2 hours", "2h", {"idempotency_key": "k"}),
    "after": (PARENT, PARENT, PARENT, "{9999999999}", {}),
    "after_any": (PARENT, PARENT, PARENT, "{9999999999}", {}),
    "on_failure": ("wait", "wait", "wait", "wait", {"after": PARENT}),
}  # fmt: skip
ROW = """
SELECT to_jsonb(r) - '{id,created_at,available_at,expires_at,ready_at}'::text[] AS run,
    r.available_at > '2031-01-01' AS late,
    round(extract(epoch FROM least(r.available_at, '2032-01-01') - r.created_at) / 60) AS due,
    round(extract(epoch FROM r.expires_at - r.created_at) / 60) AS expires,
    (SELECT array_agg((k.scope, k.key, k.run_id = r.id,
                       round(extract(epoch FROM k.expires_at - k.created_at) / 60))::text)
     FROM pgsched.kept_keys k WHERE k.scope NOT LIKE 'bucket %%') AS keys,
    (SELECT array_agg(split_part(k.scope, ' ', 2)) FROM pgsched.kept_keys k WHERE k.scope LIKE 'bucket %%') AS buckets,
    (SELECT array_agg((d.parent_id, d.on_failure, d.any_of)::text) FROM pgsched.dependencies d) AS parents
FROM pgsched.runs r WHERE r.id = %s"""


def test_every_option_is_in_the_table() -> None:
    assert SAME.keys() == HINTS.keys() - {"wait_for_room"}


@pytest.mark.parametrize("name", SAME)
def test_an_option_makes_the_same_run_by_every_door(db: psycopg.Connection[Any], name: str) -> None:
    value, text, json, literal, others = SAME[name]
    db.execute("INSERT INTO pgsched.runs (id, task) OVERRIDING SYSTEM VALUE VALUES (9999999999, 'parent')")
    found = {}
    for door, given in (("python", value), ("cli", text), ("http", json), ("sql", literal)):
        with db.transaction(force_rollback=True):
            every = {**others, name: given}
            if door == "sql":
                names = ", ".join(f"{option} => %({option})s" for option in every)
                literals = {option: "{9999999999}" if one == PARENT else one for option, one in every.items()}
                call = f"SELECT pgsched.enqueue('t', '{{\"n\": 1}}', {names})".encode()
                (run,) = db.execute(call, literals).fetchone() or (None,)
            else:
                key = every.pop("idempotency_key", None) if door == "http" else None
                run = enqueue_by_name(db, "t", {"n": 1}, TEXT_DOORS[door](every, key))
            with db.cursor(row_factory=dict_row) as cursor:
                found[door] = cursor.execute(ROW, [run]).fetchone()
    assert found["cli"] == found["http"] == found["sql"] == found["python"]
