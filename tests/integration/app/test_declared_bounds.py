"""`@app.job` accepts and refuses the same values as the database: bounds, and combinations of policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from pgsched import App
from pgsched.app.declarations import POLICIES
from pgsched.db.connection.failures import raise_explained
from pgsched.db.schema.tables import jobs
from pgsched.errors import InputError

MICROSECOND = timedelta(microseconds=1)
TEN_YEARS = timedelta(days=3600)  # PostgreSQL compares intervals as if a month had 30 days
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
LENGTHS = (1, 2, 100, 101, 200, 201, 500, 501, 10_000, 10_001, 65_536, 65_537)
BOUNDS = (0, 1, 9, 10, 100, 1000, 10_000, 100_000, 1_000_000, 2**31 - 1)
DURATIONS = (timedelta(0), timedelta(milliseconds=1), timedelta(seconds=1), TEN_YEARS)
VALUES: dict[str, list[Any]] = {
    "TEXT": ["", " x", "x ", "a\nb", "a\x7fb", "'", *("x" * length for length in LENGTHS)],
    "INTEGER": [value + by for value in BOUNDS for by in (-1, 0, 1)],
    "FLOAT": [-0.001, 0.0, 0.2, 1.0, 1.001],
    "INTERVAL": [value + by for value in DURATIONS for by in (-MICROSECOND, timedelta(0), MICROSECOND)],
    "TIMESTAMP": [value + by for value in (EARLIEST, LATEST) for by in (-MICROSECOND, timedelta(0), MICROSECOND)],
    "BOOLEAN": [False],
    "ARRAY": [["x"], ["x"] * 100, ["x"] * 101, ["x" * 200], ["x" * 201], [""], ["a\nb"], [" x"]],
    "JSONB": [{"any": "1 day"}, {"any": "0 seconds"}, {"never": "1 day"}, {}],
}
ALIASES = {"SMALLINTEGER": "INTEGER", "DOUBLE": "FLOAT", "DATETIME": "TIMESTAMP"}


def answer(db: psycopg.Connection, **columns: Any) -> str | None:
    """Return the database's error for a job with these columns, or None if the job is accepted."""
    given = {"name": "j", "task": "t", "schedule": "@hourly"} | columns
    into = sql.SQL("INSERT INTO pgsched.jobs ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(sql.Placeholder() for _ in given)
    )
    values = [Jsonb(value) if isinstance(value, dict) else value for value in given.values()]
    try:
        with raise_explained(), db.transaction(force_rollback=True):
            db.execute(into, values)
    except (InputError, psycopg.DataError) as error:
        return str(error)
    return None


def declared(**policies: Any) -> str | None:
    """Return the declaration's error for a job with these policies, or None if they are accepted."""
    try:
        App("test").job(schedule="@hourly", name="j", **policies)(lambda: None)
    except InputError as error:
        return str(error)
    return None


def values_for(name: str) -> list[Any]:
    kind = type(jobs.c[name].type).__name__.upper()
    return VALUES[ALIASES.get(kind, kind)]


def value_declared(value: Any) -> Any:
    """Return the value as code declares it: `keep` takes durations where its column holds text."""
    return {key: timedelta(days=1) for key in value} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    "name", [name for name in POLICIES if name not in ("after_jobs", "calendar")]
)  # names of others
def test_a_policy_has_the_bounds_of_its_column(db: psycopg.Connection, name: str) -> None:
    wrong = [
        (value if len(str(value)) < 100 else f"{len(value)} items", here, there)
        for value in values_for(name)
        for here, there in [(declared(**{name: value_declared(value)}), answer(db, **{name: value}))]
        if (here is None) != (there is None)
    ]
    assert wrong == []


HOUR, NOON = timedelta(hours=1), datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "policies",
    [
        {"delete_after_run": True},
        {"starts_at": NOON, "ends_at": NOON},
        {"starts_at": NOON, "ends_at": NOON + MICROSECOND},
        {"retry_within": HOUR},
        *({"retry_within": HOUR, "overlap": overlap} for overlap in ("skip", "allow", "replace")),
        {"jitter": HOUR, "start_deadline": HOUR},
        {"jitter": HOUR, "start_deadline": HOUR + MICROSECOND},
        {"jitter": HOUR},
        {"start_deadline": HOUR},
    ],
)
def test_conflicting_policies_give_the_same_error_as_the_database(
    db: psycopg.Connection, policies: dict[str, Any]
) -> None:
    assert declared(**policies) == answer(db, **policies)


@pytest.mark.parametrize("count", [100, 101])
def test_after_jobs_has_the_same_bound_as_the_database(db: psycopg.Connection, count: int) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task) SELECT 'a' || n, 't' FROM generate_series(1, %s) n", [count])
    ids = [number for (number,) in db.execute("SELECT id FROM pgsched.jobs")]
    assert declared(after_jobs=[f"a{n + 1}" for n in range(count)]) == answer(db, after_jobs=ids)


def test_a_job_does_not_wait_for_itself(db: psycopg.Connection) -> None:
    assert declared(after_jobs=["j"]) == answer(db, id=7, after_jobs=[7]) == "after_jobs: a job cannot wait for itself"
