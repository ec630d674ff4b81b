"""A function that refuses an unknown name gives names that may have been meant: of jobs, tasks and time zones."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from pgsched.core.schedule import zones
from tests.support.logins import Logins, one

# The functions whose errors are about a name that is not known, each with a call, and with words of the error.
JOB = 'job: there is no job named "nihgtly"; did you mean nightly?'
REFUSING = {
    "backfill": ("backfill('nihgtly', now() - interval '2 days', now() - interval '1 day')", JOB),
    "trigger": ("trigger('nihgtly')", JOB),
    "preview": ("preview('nihgtly')", JOB),
    "explain": ("explain('nihgtly')", JOB),
    "recent_runs": ("recent_runs('nihgtly')", JOB),
    "job_status": ("job_status('nihgtly')", JOB),
    "slots": ("slots('nihgtly', now())", JOB),
    "jobs_in_order": ("jobs_in_order('nihgtly', true, true)", JOB),
}
HINTING = {
    "timezone_error": ("timezone_error('Europe/Berln')",
                       'timezone: "Europe/Berln" is not a known IANA zone; did you mean Europe/Berlin?'),
    "check_args": ("check_args('app.tuoch', '{}')", 'the arguments of task "app.tuoch"; did you mean app.touch?'),
    "explain_run": ("explain_run((SELECT r FROM pgsched.runs r))",
                    "does not offer task app.tuoch there; did you mean app.touch?"),
}  # fmt: skip
# Functions that the ones above call, which give no answer of their own; and what is known by a number or from a list
# that the error gives whole.
PARTS = {"job_named", "refuse_unknown_job"}
LISTED = {"bad_owner": "there is no role", "command_args_error": "no such key; known are",
          "dependencies_after_insert": "there is no run", "grant_names": "there is no role",
          "http_args_error": "no such key; known are", "job_error": "there is no calendar named",
          "jobs_after_jobs": "there is no job %s'", "json_misfit": "there is no such argument",
          "keep_error": "is not one of", "not_one_of": "is not one of",
          "schedule_macro_error": "is not a known macro"}  # fmt: skip
UNKNOWN = re.compile(r"there is no |no such |not a known|no worker has registered|is not one of|does not offer"
                     r"|refuse_unknown_job|job_named|no_data_found")  # fmt: skip


def furnish(db: psycopg.Connection[Any]) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '@daily'), ('weekly', 't', '@weekly')"
    )
    db.execute("INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
               " VALUES ('w', 'h', 1, '0', 1, '{task}', '{app.touch,app.mail}', '30 seconds')")  # fmt: skip
    db.execute("SELECT pgsched.enqueue('app.tuoch')")


def test_every_function_that_refuses_a_name_is_known_here(db: psycopg.Connection[Any]) -> None:
    bodies = db.execute(
        "SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace"
    ).fetchall()
    found = {name for name, body in bodies if UNKNOWN.search(re.sub("--.*", "", body))}
    assert found == REFUSING.keys() | HINTING.keys() | PARTS | LISTED.keys()
    assert [name for name, body in bodies if name in LISTED and LISTED[name] not in body] == []


@pytest.mark.parametrize("name", sorted(REFUSING))
def test_an_unknown_job_is_refused_with_a_similar_one(db: psycopg.Connection[Any], name: str) -> None:
    furnish(db)
    call, words = REFUSING[name]
    with pytest.raises(psycopg.errors.NoDataFound) as refused:
        db.execute(f"SELECT * FROM pgsched.{call}".encode())
    assert refused.value.diag.message_primary == words


@pytest.mark.parametrize("name", sorted(HINTING))
def test_an_unknown_task_or_zone_is_answered_with_a_similar_one(db: psycopg.Connection[Any], name: str) -> None:
    furnish(db)
    call, words = HINTING[name]
    answer = db.execute(f"SELECT * FROM pgsched.{call}".encode()).fetchone()
    assert answer is not None
    assert words in str(answer[-1])


def meant(db: psycopg.Connection[Any], word: str, known: list[str]) -> list[str]:
    row = db.execute("SELECT pgsched.did_you_mean(%s, %s::text[])", [word, known]).fetchone()
    assert row is not None
    found = re.fullmatch(r"(?:; did you mean (.*)\?)?", row[0])
    assert found is not None
    return found[1].split(" or ") if found[1] else []


KNOWN = ["nightly-totals", "nightly", "weekly", "mail", "app.touch", "orders.total", "Europe/Berlin", "job-1", "x"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("nighly", ["nightly"]),
        ("nigthly", ["nightly"]),
        ("nightlly", ["nightly"]),
        ("mial", ["mail"]),
        ("mole", []),
        ("Mail", ["mail"]),
        ("touch", ["app.touch"]),
        ("berlin", ["Europe/Berlin"]),
        ("europe/brelin", ["Europe/Berlin"]),
        ("order.totals", ["orders.total"]),
        ("nightly_total", ["nightly-totals", "nightly"]),
        ("jobs-1", ["job-1"]),
        ("mail", []),
        ("", []),
        ("y", []),
        ("something else", []),
        ("n" * 201, []),
    ],
)
def test_names_are_similar_by_spelling(db: psycopg.Connection[Any], word: str, expected: list[str]) -> None:
    assert meant(db, word, KNOWN) == expected


def test_at_most_three_names_are_given_the_most_similar_first(db: psycopg.Connection[Any]) -> None:
    assert meant(db, "shop.mail2", [f"shop.mail{n}{n}" for n in range(5)] + ["shop.mail", "SHOP.MAIL2"]) == [
        "SHOP.MAIL2", "shop.mail22", "shop.mail",
    ]  # fmt: skip


def test_a_part_of_a_name_is_enough(db: psycopg.Connection[Any]) -> None:
    furnish(db)
    with pytest.raises(psycopg.errors.NoDataFound, match=r'no job named "LY"; did you mean weekly or nightly\?'):
        db.execute("SELECT pgsched.trigger('LY')")


@pytest.mark.parametrize("typed", ["Europe/Berln", "America/New_Yrok", "Asia/Tokio", "utc", "europe/paris", "Berlin"])
def test_zones_are_hinted_at_as_the_program_does(db: psycopg.Connection[Any], typed: str) -> None:
    row = db.execute("SELECT pgsched.timezone_error(%s)", [typed]).fetchone()
    assert row is not None
    (first, *_) = re.search(r"did you mean (.*)\?$", row[0])[1].split(" or ")  # type: ignore[index]
    assert first in zones.names()
    with pytest.raises(Exception, match=re.escape(first)):
        zones.zone(typed)


def test_twenty_thousand_names_are_compared_within_seconds(db: psycopg.Connection[Any]) -> None:
    db.execute("SET statement_timeout = '5s'")
    row = db.execute("SELECT pgsched.did_you_mean('nightly report 12345', ARRAY("
                     "SELECT 'nightly report ' || n FROM generate_series(10000, 29999) n))").fetchone()  # fmt: skip
    assert row is not None


def test_a_producer_is_told_of_its_own_jobs_only(logins: Logins) -> None:
    """Also by functions that run with the rights of the tables' owner."""
    alice, bob, eye = (logins.connect(who) for who in ("alice", "bob", "eye"))
    alice.execute("INSERT INTO jobs (name, task, schedule) VALUES ('salaries of alice', 't', '@daily')")
    bob.execute("INSERT INTO jobs (name, task, schedule) VALUES ('salaries of bob', 't', '@daily')")
    for call in ("trigger('salaries')", "preview('salaries')", "explain('salaries of Bob')",
                 "backfill('salaries', now() - interval '2 days', now() - interval '1 day')"):  # fmt: skip
        with pytest.raises(psycopg.errors.NoDataFound) as refused:
            bob.execute(f"SELECT * FROM pgsched.{call}".encode())
        assert str(refused.value).splitlines()[0].endswith("; did you mean salaries of bob?"), call
    with pytest.raises(psycopg.errors.NoDataFound, match="salaries of bob or salaries of alice"):
        one(eye, "SELECT explain('salaries')")
