"""What a run knows of its slot: SQL settings and parameters, texts of commands and requests, and Run in Python."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched.app.control import AttemptState
from pgsched.core.model import Claim, Outcome, Result
from pgsched.core.schedule.slot_text import Interval
from pgsched.db.connection.connect import aconnect
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.runs import claims
from pgsched.errors import InputError
from pgsched.execute.http.executor import HttpExecutor
from pgsched.execute.http.request import read_request
from pgsched.execute.process_pool.protocol import attempt_message
from pgsched.execute.process_pool.protocol import run_of as run_in_child
from pgsched.execute.python.executor import run_of
from pgsched.execute.slot_tokens import fill_slot
from pgsched.execute.sql import SqlExecutor
from pgsched.execute.subprocess.command import CommandExecutor
from pgsched.execute.subprocess.program import Processes
from pgsched.execute.subprocess.shell import ShellExecutor
from pgsched.leader.backfill import run_backfills
from tests.support.db.passing import add, job, lead, pass_time
from tests.support.db.setting import put_back, take
from tests.support.executing import SLOT, claim, execute

BEFORE = SLOT - timedelta(days=1)
WHOLE: dict[str, Any] = {"slot_zone": "Asia/Kolkata", "interval_start": BEFORE, "job": "nightly"}
AD_HOC: dict[str, Any] = {"job_id": None, "scheduled_at": None}


# ---- the claim


def test_a_claim_has_the_zone_and_the_interval_of_its_slot(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1s", timezone="Asia/Kolkata")
    put_back(db, 1)
    lead(db)
    (one,) = take(db)
    assert one.slot_zone == "Asia/Kolkata" and one.scheduled_at is not None and one.job is None
    assert one.interval_start == one.scheduled_at - timedelta(seconds=1)


def test_a_slot_in_utc_and_a_run_without_a_job_have_no_zone(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1s")
    put_back(db, 1)
    lead(db)
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    claims_by_job = {one.job_id is not None: one for one in take(db, 5)}
    assert [claims_by_job[has_job].slot_zone for has_job in (True, False)] == [None, None]
    assert claims_by_job[True].interval_start is not None and claims_by_job[False].interval_start is None


def test_a_late_run_for_several_slots_has_the_interval_of_all_of_them(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h", overlap="allow")
    lead(db)
    found = []
    for hours in (3.5, 1):
        pass_time(db, hours * 3600)
        lead(db)
        (one,) = take(db)
        interval = run_of(one, None, AttemptState()).interval  # type: ignore[arg-type]
        assert interval is not None
        found.append([(instant - job(db)["anchor_at"]) / timedelta(hours=1) for instant in interval])
    assert found == [[0, 3], [3, 4]]


def test_a_backfill_gives_each_slot_its_own_interval(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h")
    lead(db)
    pass_time(db, 3.5 * 3600)
    lead(db)
    anchor = job(db)["anchor_at"]
    request = backfills.Request(anchor.isoformat(), (anchor + timedelta(hours=3)).isoformat(), mode="all", max_active=9)
    backfills.add_backfill(db, "a", request)
    with db.transaction():
        run_backfills(db)
    ends = {one.scheduled_at: one.interval_start for one in take(db, 9)}
    assert ends[anchor + timedelta(hours=2)] == anchor + timedelta(hours=1)
    assert ends[anchor + timedelta(hours=1)] == anchor


def test_runs_that_people_ask_for_have_the_zone_as_well(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h", timezone="Asia/Kolkata", mode="shadow")
    lead(db)
    jobs.trigger(db, "a")
    assert [one.slot_zone for one in take(db, 5)] == ["Asia/Kolkata"]
    pass_time(db, 2.5 * 3600)
    lead(db)
    db.execute("SELECT pgsched.retry(id) FROM pgsched.runs WHERE reason = 'shadow' AND covers_count = 2")
    (one,) = take(db, 5)
    assert one.slot_zone == "Asia/Kolkata" and one.scheduled_at is not None
    assert one.interval_start == one.scheduled_at - timedelta(hours=1), "the row is revived for its own slot alone"


def test_a_claim_of_sql_has_the_name_of_its_job(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1s", kind="sql", task="SELECT 1")
    put_back(db, 1)
    lead(db)
    db.execute("INSERT INTO pgsched.runs (kind, task) VALUES ('sql', 'SELECT 1')")
    assert sorted(str(one.job) for one in take(db, 5)) == ["None", "a"]


# ---- SQL


def sql(dsn: str, text: str, args: Any = None, **more: Any) -> Outcome:
    with psycopg.connect(dsn) as conn:
        return execute(SqlExecutor(dsn), claim("sql", text, args, owner=conn.info.user, **more))


SETTINGS = "run_id attempt job scheduled_at interval_start"
STORE = (
    "INSERT INTO public.told SELECT name, current_setting('pgsched.' || name)"
    " FROM unnest(string_to_array('{}', ' ')) name"
)


@pytest.fixture
def told(db: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    db.execute("CREATE TABLE public.told (name text, value text)")
    return db


def texts(db: psycopg.Connection[Any]) -> dict[str, str]:
    return dict(db.execute("SELECT name, value FROM public.told").fetchall())


def test_statements_read_their_run_from_settings(dsn: str, told: psycopg.Connection[Any]) -> None:
    outcome = sql(dsn, f"SAVEPOINT s; SELECT 1; ROLLBACK TO s; {STORE.format(SETTINGS)}", **WHOLE)
    assert outcome.result is Result.SUCCEEDED, outcome.error
    assert texts(told) == {
        "run_id": "7", "attempt": "1", "job": "nightly", "scheduled_at": "2024-05-01T12:00:00+00:00",
        "interval_start": "2024-04-30T12:00:00+00:00",
    }  # fmt: skip
    as_instant = "SELECT value::timestamptz FROM public.told WHERE name = 'scheduled_at'"
    assert told.execute(as_instant).fetchone() == (SLOT,)


def test_what_a_run_does_not_have_is_an_empty_text(dsn: str, told: psycopg.Connection[Any]) -> None:
    assert sql(dsn, STORE.format(SETTINGS), **AD_HOC).result is Result.SUCCEEDED
    assert texts(told) == {"run_id": "7", "attempt": "1", "job": "", "scheduled_at": "", "interval_start": ""}


def test_a_name_with_quotes_is_a_value(dsn: str, told: psycopg.Connection[Any]) -> None:
    name = "o'brien\"; DROP TABLE told; --"
    assert sql(dsn, STORE.format("job"), **WHOLE | {"job": name}).result is Result.SUCCEEDED
    assert texts(told) == {"job": name}


def test_the_same_values_are_parameters(dsn: str, told: psycopg.Connection[Any]) -> None:
    text = "INSERT INTO told VALUES (%(pgsched_job)s, %(pgsched_scheduled_at)s - %(pgsched_interval_start)s)"
    assert sql(dsn, text, **WHOLE).error is None
    assert texts(told) == {"nightly": "1 day"}
    both = "INSERT INTO told SELECT %(x)s, %(pgsched_run_id)s || '/' || %(pgsched_attempt)s || '%%'"
    assert sql(dsn, both, {"x": "mine"}, **WHOLE).error is None
    assert texts(told)["mine"] == "7/1%"


def test_a_parameter_of_a_run_that_is_no_slot_is_null(dsn: str, told: psycopg.Connection[Any]) -> None:
    assert (
        sql(dsn, "INSERT INTO told VALUES ('null', coalesce(%(pgsched_scheduled_at)s, 'none'))", **AD_HOC).error is None
    )
    assert texts(told) == {"null": "none"}


def test_a_text_that_names_no_parameter_is_sent_unchanged(dsn: str, told: psycopg.Connection[Any]) -> None:
    assert sql(dsn, "INSERT INTO told VALUES ('%s', '%(x)s %')", **WHOLE).error is None
    assert texts(told) == {"%s": "%(x)s %"}


def test_reserved_names_are_refused_as_arguments(dsn: str, db: psycopg.Connection[Any]) -> None:
    reason = "args.pgsched_job: names that begin with pgsched_ are set by pgsched itself"
    outcome = sql(dsn, "SELECT 1", {"pgsched_job": "x"})
    assert (outcome.error, outcome.retry) == (reason, False)
    args = """'sql', '{"a": 1, "pgsched_job": "x"}'"""
    for insert in (
        "jobs (name, task, kind, args) VALUES ('j', 'SELECT 1',",
        "runs (task, kind, args) VALUES ('SELECT 1',",
    ):
        with pytest.raises(psycopg.Error) as refused:
            db.execute(f"INSERT INTO pgsched.{insert} {args})")
        assert refused.value.diag.message_primary == reason


def test_another_database_has_the_settings_too(dsn: str, told: psycopg.Connection[Any]) -> None:
    executor = SqlExecutor("host=/nowhere", named={"other": dsn})
    outcome = execute(executor, claim("sql", STORE.format("job"), {"dsn": "other"}, owner="nobody", **WHOLE))
    assert outcome.result is Result.SUCCEEDED, outcome.error
    assert texts(told) == {"job": "nightly"}


# ---- commands and requests


def test_a_command_gets_the_slot_in_its_arguments() -> None:
    code = "import sys, os; print(sys.argv[1], os.environ['DAY'], os.environ['PGSCHED_INTERVAL_START'])"
    args = {"argv": ["-c", code, "{slot:%Y-%m-%d %H:%M}"], "env": {"DAY": "{slot:%A}"}}
    outcome = execute(CommandExecutor(Processes()), claim("command", "python3", args, **WHOLE))
    assert outcome.log_tail == "2024-05-01 17:30 Wednesday 2024-04-30T12:00:00+00:00\n"


def test_a_shell_line_gets_the_slot_and_keeps_its_braces() -> None:
    line = "echo a b | awk '{print $2 \"{slot:%Y%m%d}\"}'; echo {slot}"
    outcome = execute(ShellExecutor(Processes()), claim("shell", line, **WHOLE))
    assert outcome.log_tail == "b20240501\n{slot}\n"


@pytest.mark.parametrize(("kind", "executor"), [("command", CommandExecutor), ("shell", ShellExecutor)])
def test_a_wrong_token_is_not_retried_and_an_unknown_zone_is(kind: str, executor: Any) -> None:
    outcome = execute(executor(Processes()), claim(kind, "echo {slot:%Q}", **WHOLE))
    assert (outcome.error or "").startswith("task: {slot:%Q}: after %") and not outcome.retry
    outcome = execute(executor(Processes()), claim(kind, "echo {slot:%Y}", slot_zone="Mars/Phobos"))
    assert (outcome.error or "").startswith("timezone: ") and outcome.retry


def test_a_request_gets_the_slot_in_url_parameters_headers_and_body() -> None:
    args = {
        "params": {"day": "{slot:%d}"},
        "headers": {"X-Day": "{slot:%a}"},
        "json": {"t": "{slot:%H:%M}", "b": "{x}"},
    }
    ask = read_request(fill_slot(claim("http", "https://example.org/{slot:%Y/%m}/{id}", args, **WHOLE)))
    assert ask.url == "https://example.org/2024/05/{id}?day=01"
    assert (ask.headers["X-Day"], ask.content) == ("Wed", b'{"t":"17:30","b":"{x}"}')
    assert ask.headers["X-Pgsched-Interval-Start"] == "2024-04-30T12:00:00+00:00"


@pytest.mark.parametrize(
    ("url", "args", "reason"),
    [
        ("https://example.org/{slot:%d %H}", {}, "must not contain spaces"),
        ("https://example.org{slot:@10.0.0.%u}/", {}, "must not contain a user name"),
        ("{slot:ftp%u}://example.org/", {}, "must begin with http"),
        ("https://example.org:{slot:9%Y}/", {}, "port 92024 is out of range"),
        ("https://example.org/", {"method": "{slot:CONNECT%u}"}, "args.method: expected a method"),
        ("https://example.org/", {"headers": {"X-A": "{slot:a\r\nX-B: %d}"}}, "args.headers.X-A: must be printable"),
    ],
)
def test_a_request_that_the_slot_makes_wrong_is_refused(url: str, args: dict[str, Any], reason: str) -> None:
    """What is checked is what is sent: the address, too, is looked at after the slot is in it."""
    with pytest.raises(InputError, match=reason):
        read_request(fill_slot(claim("http", url, args, **WHOLE)))


@pytest.mark.parametrize("url", ["http://{slot:127.0.0.%u}:1/", "http://127.0.0.{slot:%u}:1/{slot:%d}"])
def test_an_address_that_the_slot_makes_is_allowed_or_not(url: str) -> None:
    given = claim("http", url, {"connect_timeout_s": 1}, **WHOLE)
    outcome = execute(HttpExecutor([], 1), given)
    assert outcome.error is not None and "this worker has no --http-allow for it" in outcome.error
    assert "cannot connect" in (execute(HttpExecutor(["127.0.0.0/8"], 1), given).error or "")


def test_what_the_slot_writes_into_a_shell_line_is_not_filled_again() -> None:
    line = "printf '%s\\n' '{slot:{slot:%d}}' \"$A\""
    given = claim("shell", line, {"env": {"A": "{slot:$(echo %d)}"}}, **WHOLE)
    assert execute(ShellExecutor(Processes()), given).log_tail == "{slot:01}\n$(echo 01)\n"


@pytest.mark.parametrize("kind", ["command", "shell", "http"])
def test_the_database_refuses_a_wrong_token_where_a_job_is_written(db: psycopg.Connection, kind: str) -> None:
    task = "https://example.org/{slot:%Y}" if kind == "http" else "echo {slot:%Y}"
    args = {"json": {"a": ["{slot:%d%Q}"]}} if kind == "http" else {"env": {"A": "{slot:%d%Q}"}}
    with pytest.raises(Exception, match=r"^args: \{slot:%d%Q\}: after %, one of these is known: a A b B d") as refused:
        jobs.add(db, {"name": "j", "kind": kind, "task": task, "args": args})
    with pytest.raises(Exception, match="args: ") as said:
        fill_slot(claim(kind, task, args, **WHOLE))
    assert str(refused.value) == str(said.value)
    jobs.add(db, {"name": "j", "kind": kind, "task": task})
    with pytest.raises(Exception, match=r"^task: \{slot:%Q\}: "):
        jobs.update(db, "j", {"task": task.replace("%Y", "%Q")})


def test_other_kinds_and_other_braces_are_not_judged(db: psycopg.Connection) -> None:
    jobs.add(db, {"name": "a", "kind": "sql", "task": "SELECT '{slot:%Q}'"})
    jobs.add(db, {"name": "b", "task": "t", "args": {"text": "{slot:%Q}"}})
    jobs.add(db, {"name": "c", "kind": "shell", "task": "awk '{slot}' {slot:} {slot:%Y} {x:%Q} ${slot:-%Q} {slot:Q}"})
    db.execute("""INSERT INTO pgsched.runs (kind, task, args) VALUES ('command', 'echo', '["{slot:%Q}"]')""")


def test_a_variable_of_the_shell_is_no_token() -> None:
    line = "slot=green; echo ${slot:-blue} ${slot:0:2}"
    outcome = execute(ShellExecutor(Processes()), claim("shell", f"bash -c '{line}'", **WHOLE))
    assert outcome.log_tail == "green gr\n"


def test_more_tokens_than_are_filled_are_refused_where_a_job_is_written(db: psycopg.Connection) -> None:
    job = {"name": "a", "kind": "command", "task": "echo {slot:%d}"}
    jobs.add(db, job | {"args": ["{slot:%d}"] * 999})
    with pytest.raises(Exception, match=r"^args: more than 1,000 tokens that begin with \{slot:$"):
        jobs.add(db, job | {"name": "b", "args": ["{slot:%d}"] * 1000})


def test_keys_and_parts_of_different_texts_are_no_token(db: psycopg.Connection) -> None:
    whole = {"argv": ["{slot:%", "Q}", '{slot:say "%d"}'], "env": {"{slot:%Q}": "x"}}
    jobs.add(db, {"name": "a", "kind": "command", "task": "echo", "args": whole})
    filled = fill_slot(claim("command", "echo", whole, **WHOLE)).args
    assert filled == {"argv": ["{slot:%", "Q}", 'say "01"'], "env": {"{slot:%Q}": "x"}}
    with pytest.raises(Exception, match=r'^args: \{slot:"%Q"\}: after'):
        jobs.add(db, {"name": "b", "kind": "command", "task": "echo", "args": ['{slot:"%Q"}']})


# ---- Python


def run(**more: Any) -> Claim:
    return claim("task", "t", **more)


def test_a_handler_knows_its_interval_and_its_slot_in_the_jobs_zone() -> None:
    given = run(**WHOLE)
    for one in (run_of(given, None, AttemptState()), run_in_child(attempt_message(given, None), None, AttemptState())):  # type: ignore[arg-type]
        assert one.interval == Interval(BEFORE, SLOT)
        local = one.slot_local
        assert local is not None and local == SLOT and f"{local:%H:%M %Z}" == "17:30 IST"


def test_an_ad_hoc_run_has_neither() -> None:
    one = run_of(run(**AD_HOC), None, AttemptState())
    assert (one.interval, one.slot_local) == (None, None)


def test_a_run_that_a_person_asked_for_has_no_interval() -> None:
    one = run_of(run(), None, AttemptState())
    assert one.interval is None
    assert one.slot_local == datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_claims_of_a_worker_carry_the_slot(dsn: str, db: psycopg.Connection) -> None:
    """The worker's own statements, over asyncio."""
    add(db, schedule="@every 1s", timezone="Asia/Kolkata")
    put_back(db, 1)
    lead(db)

    async def claimed() -> list[Claim]:
        async with await aconnect(dsn, purpose="worker") as conn:
            offer = claims.WorkerOffer(1, 30.0, [], ["t"])
            return await claims.claim(conn, offer, "default", 5, uuid4(), places=5)

    (one,) = asyncio.run(claimed())
    assert (one.slot_zone, one.queue) == ("Asia/Kolkata", "default")
