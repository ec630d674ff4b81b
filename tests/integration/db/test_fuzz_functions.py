"""Fuzz test: any call of any SQL function returns, or is refused with a documented error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st

from tests.support.fuzz import recipes
from tests.support.fuzz.profile import FUNCTION, PART, fuzz
from tests.support.fuzz.setting import answer, furnish
from tests.support.fuzz.values import value

# The functions that docs and clients name. All others are parts of these; users may call them as well.
PUBLIC = {
    "enqueue",
    "enqueue_result",
    "first_result",
    "trigger",
    "cancel",
    "retry",
    "retry_now",
    "retry_tree",
    "backfill",
    "cancel_backfill",
    "assert_claim",
    "schedule_error",
    "timezone_error",
    "preview",
    "explain",
    "recent_runs",
    "job_status",
    "slots",
} | recipes.SANE.keys()
FUNCTIONS = """
SELECT p.proname::text, coalesce(p.proargnames, '{}'), ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) t)
FROM pg_proc p WHERE p.pronamespace = 'pgsched'::regnamespace AND p.prokind = 'f'
    AND p.prorettype <> 'trigger'::regtype ORDER BY 1
"""
ROWTYPES = (
    "pgsched.jobs", "pgsched.runs", "pgsched.queues", "pgsched.job_calendars", "pgsched.calendars",
    "pgsched.calendar_times", "pgsched.locks", "pgsched.items",
)  # fmt: skip


@pytest.fixture
def furnished(db: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    furnish(db)
    db.execute(recipes.ROWS.encode())
    yield db


def functions(db: psycopg.Connection[Any]) -> list[tuple[str, list[str], list[str]]]:
    return [(name, names[: len(types)], types) for name, names, types in db.execute(FUNCTIONS).fetchall()]


def argument(kind: str) -> str:
    """Return the placeholder of an argument. For a row type the argument is any row of its table."""
    if kind in ROWTYPES:
        return f"(SELECT x FROM {kind} x ORDER BY ctid OFFSET abs(%s::text::bigint %% 20) LIMIT 1)"
    return f"%s::text::{kind}"


def calls(names: list[str], types: list[str]) -> st.SearchStrategy[list[str | None]]:
    columns = [
        value("bigint" if kind in ROWTYPES else kind, name)
        for name, kind in zip([*names, *[""] * len(types)], types, strict=False)
    ]
    return st.tuples(*columns).map(list)


PARTS = 8


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_a_function_answers_or_says_what_is_wrong(furnished: psycopg.Connection[Any], part: int) -> None:
    found = [one for one in functions(furnished) if one[0] not in PUBLIC]
    assert len(found) > 40
    for name, names, types in found[part::PARTS]:
        statement = f"SELECT * FROM pgsched.{name}({', '.join(argument(kind) for kind in types)})"

        asking(furnished, statement, calls(names, types))


def asking(db: psycopg.Connection[Any], statement: str, values: st.SearchStrategy[list[str | None]]) -> None:
    """Call the statement with many values from the strategy."""

    @fuzz(PART, values=values)
    def ask(values: list[str | None]) -> None:
        answer(db, statement, values, internal=True)

    ask()


@pytest.mark.few(5)
@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_function_answers_or_says_what_is_wrong(furnished: psycopg.Connection[Any], name: str) -> None:
    found = [one for one in functions(furnished) if one[0] == name]
    assert len(found) == 1
    _, names, types = found[0]
    kinds = dict(zip(names, types, strict=True))
    given = {one: st.one_of(value(kind, one), *sane(name, one)) for one, kind in kinds.items()}
    must = required(furnished, name, names)
    seen: set[str | None] = set()
    few = 4 if name in recipes.SANE else 16

    @fuzz(
        (FUNCTION[0] * few, FUNCTION[1] * 6),
        given=st.fixed_dictionaries(
            {one: given[one] for one in must}, optional={one: given[one] for one in names if one not in must}
        ),
    )
    def ask(given: dict[str, str | None]) -> None:
        arguments = ", ".join(f"{one} => %s::text::{kinds[one]}" for one in given)
        call = f"SELECT * FROM pgsched.{name}({arguments})"
        seen.add(answer(furnished, call, list(given.values()), raw=False))

    ask()
    assert None in seen, f"nothing was ever accepted: {seen}"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("priority => %s", -(2**31)),
        ("priority => %s", 99_999),
        ("delay => %s::interval", "178000000 years"),
        ("delay => %s::interval", "-178000000 years"),
    ],
)
def test_enqueue_names_the_argument_that_no_row_can_hold(
    db: psycopg.Connection[Any], argument: str, value: Any
) -> None:
    """The fuzz tests found these: the errors 22003 and 22008 did not name the argument."""
    with pytest.raises(psycopg.errors.CheckViolation, match=rf"^{argument.partition(' ')[0]}: "):
        db.execute(f"SELECT pgsched.enqueue('t', {argument})", [value])


@pytest.mark.parametrize("state", ["queued", "running"])
def test_cancel_refuses_a_reason_that_is_too_long_by_name(db: psycopg.Connection[Any], state: str) -> None:
    db.execute("SELECT pgsched.enqueue('t')")
    db.execute("UPDATE pgsched.runs SET state = %s, token = gen_random_uuid(), lease_until = now()", [state])
    with pytest.raises(psycopg.errors.CheckViolation, match=r"^why: 10001 characters, at most 10000 are allowed"):
        db.execute("SELECT pgsched.cancel(1, repeat('x', 10001))")
    assert db.execute("SELECT pgsched.cancel(1, repeat('\U0001f600', 10000))").fetchone() != (None,)


SANE = {
    "task": "t",
    "job": "every",
    "from_at": "2026-01-01Z",
    "to_at": "2026-01-03Z",
    "run_id": "1",
    "claim_token": "00000000-0000-0000-0000-000000000001",
}


def sane(name: str, argument: str) -> list[st.SearchStrategy[str | None]]:
    """Return valid values of this argument, repeated so often that some whole calls are accepted."""
    found = recipes.SANE.get(name, SANE).get(argument)
    return [] if found is None or name.endswith("_error") else [st.just(found)] * 6


def required(db: psycopg.Connection[Any], name: str, names: list[str]) -> set[str]:
    row = db.execute(
        "SELECT pronargs - pronargdefaults FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace AND proname = %s",
        [name],
    ).fetchone()
    assert row is not None
    return set(names[: row[0]])
