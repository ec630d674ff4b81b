"""Unique keys that are made of arguments: templates of declarations, and `unique_by`. The database makes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, LockTimeout, TaskError
from pgsched.app.release import releases
from pgsched.db.queries.runs import tasks
from tests.support.db.setting import Aside, row_of, wait_until_waits
from tests.support.fleet import one

pytestmark = pytest.mark.pg14
Connect = Callable[..., psycopg.Connection[Any]]


def key_of(db: psycopg.Connection, run_id: int) -> str:
    return str(row_of(db, run_id)["unique_key"])


def register(db: psycopg.Connection, app: App) -> None:
    assert tasks.register(db, app.name, releases(app.tasks.values())) is None


# ---- templates of declarations


def test_a_template_gives_each_argument_its_own_run(app: App, db: psycopg.Connection) -> None:
    @app.task(unique_key="user {n}")
    def welcome(n: int) -> None: ...

    first, second, again = welcome.enqueue(1), welcome.enqueue(2), welcome.enqueue(n=1)
    assert (first != second, again, again.how) == (True, first, "existing")
    assert [key_of(db, first), key_of(db, second)] == ["user 1", "user 2"]


@pytest.mark.parametrize(
    ("pattern", "args", "key"),
    [
        ("{a}-{b}", {"a": "x-y", "b": "z"}, '"x-y"-"z"'),
        ("{a}-{b}", {"a": "x", "b": "y-z"}, '"x"-"y-z"'),
        ("k {a}", {"a": '"{b}"\t\x7f', "b": 1}, 'k "\\"{b}\\"\\t\\u007f"'),
        ("k {a}", {"a": [1.0, {"c": None, "b": 2.50}], "b": 1}, 'k [1, {"b": 2.5, "c": null}]'),
        ("{ {a}} {", {"a": True}, "{ true} {"),
        ("k {a} {b}", {"a": -0.0}, "k 0 7"),
    ],
    ids=range(6),
)  # fmt: skip
def test_arguments_stand_in_a_key_as_json_writes_them(
    app: App, db: psycopg.Connection, pattern: str, args: dict[str, Any], key: str
) -> None:
    @app.task(unique_key=pattern)
    def job(a: Any, b: Any = 7) -> None: ...

    assert key_of(db, job.enqueue(**args)) == key


def test_long_keys_end_with_a_hash_of_the_whole(app: App, db: psycopg.Connection) -> None:
    @app.task(unique_key="text {text}")
    def save(text: str) -> None: ...

    long = "\N{OGHAM LETTER RUIS}" * 5000
    ids = [save.enqueue(long), save.enqueue(long + "b"), save.enqueue(long)]
    assert ids[0] == ids[2] != ids[1]
    assert len(key_of(db, ids[0])) == 465


def test_sql_takes_the_template_of_the_task(app: App, db: psycopg.Connection) -> None:
    @app.task(name="t", unique_key="user {n}", on_conflict="replace")
    def welcome(n: int, day: date = date(2026, 5, 1), text: str = "hi") -> None: ...

    register(db, app)
    by_python = welcome.enqueue(7)
    found = db.execute("""SELECT id, how FROM pgsched.enqueue_result('t', '{"n": 7, "text": "ho"}')""").fetchone()
    assert found == (by_python, "replaced")
    assert row_of(db, by_python)["args"] == {"n": 7, "text": "ho"}
    assert one(db, """SELECT pgsched.enqueue('t', '{"n": 7}', on_conflict => 'return')""") == by_python
    with pytest.raises(psycopg.errors.CheckViolation, match='unique_key: the run has no argument "n"'):
        db.execute("SELECT pgsched.enqueue('t', '{}')")


def test_a_key_of_the_call_takes_the_place_of_the_tasks(app: App, db: psycopg.Connection) -> None:
    @app.task(unique_key="user {n}")
    def welcome(n: int, m: int = 0) -> None: ...

    ids = [
        welcome.enqueue(1),
        welcome.options(unique_key="mine").enqueue(1),
        welcome.options(unique_by=("m",)).enqueue(1),
    ]
    assert len({*ids}) == 3
    assert welcome.options(unique_key=None).enqueue(1) not in ids
    assert key_of(db, ids[1]) == "mine"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"unique_key": "user {usr}"}, "unique_key: task .* has no argument 'usr'; did you mean user?"),
        ({"unique_by": ("usr",)}, "unique_by: task .* has no argument 'usr'; did you mean user?"),
        ({"unique_key": "{user}{day}"}, "needs a word or a sign between two arguments"),
        ({"unique_key": "{user}1.5{day}"}, "needs a word or a sign between two arguments"),
        ({"unique_key": "{user}", "unique_by": True}, "unique_by: give either unique_key or unique_by, not both"),
        ({"unique_by": ()}, "unique_by: expected the names of one or more arguments"),
        ({"unique_by": "user"}, "unique_by: expected a tuple of the names of arguments"),
        ({"unique_by": (1,)}, "unique_by: expected the names"),
        ({"debounce_max": 5}, "debounce_max: it bounds how far"),
        ({"expires": date(2026, 1, 1)}, "expires: expected seconds, a timedelta or a text"),
    ],
)
def test_wrong_keys_of_a_declaration_are_refused_when_it_is_registered(app: App, options: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):

        @app.task(**options)
        def send(user: int, day: int = 1) -> None: ...


# ---- keys of a call


@pytest.mark.parametrize("key", ["user {n}", "{n}", "a {b} {n}"])
def test_a_template_at_a_call_is_refused(app: App, db: psycopg.Connection, key: str) -> None:
    """It was stored as it is: the work of the second user was taken for that of the first."""

    @app.task(name="t")
    def welcome(n: int) -> None: ...

    with pytest.raises(InputError, match=r"a key that is given at a call is taken as it is: use unique_by=\('n',\)"):
        welcome.options(unique_key=key).enqueue(7)
    with pytest.raises(psycopg.errors.CheckViolation, match=r"use unique_by => '\{n\}'"):
        db.execute("""SELECT pgsched.enqueue('t', '{"n": 7}', unique_key => %s)""", [key])
    assert key_of(db, welcome.options(unique_key="doc {draft}").enqueue(7)) == "doc {draft}"
    run = one(db, """SELECT pgsched.enqueue('t', '{"n": 7}', unique_key => 'doc {title}')""")
    assert key_of(db, run) == "doc {title}"


def test_a_template_at_a_call_is_refused_in_sql_by_the_registered_parameters(app: App, db: psycopg.Connection) -> None:
    app.task(name="t", queue="q")(lambda n=1: None)
    register(db, app)
    with pytest.raises(psycopg.errors.CheckViolation, match=r"holds \{n\}"):
        db.execute("SELECT pgsched.enqueue('t', '{}', unique_key => 'user {n}')")


# ---- unique_by


def test_unique_by_takes_the_arguments_with_their_defaults(app: App, db: psycopg.Connection) -> None:
    @app.task(name="t")
    def pay(user: int, cents: float = 5.0, day: date | None = date(2026, 5, 1)) -> None: ...

    every = pay.options(unique_by=True)
    first = every.enqueue(7)
    assert [every.enqueue(7, 5), every.enqueue(7, 5.00, date(2026, 5, 1)), every.enqueue(user=7)] == [first] * 3
    assert first not in {every.enqueue(8), every.enqueue(7, 6), every.enqueue(7, day=None)}
    by_user = pay.options(unique_by=("user",))
    assert by_user.enqueue(7, 9) == by_user.enqueue(7, 10) != first
    register(db, app)
    for args in ('{"user": 7}', '{"cents": 5.0, "user": 7.0}', '{"user": 7, "day": "2026-05-01"}'):
        assert one(db, "SELECT pgsched.enqueue('t', %s, unique_by => '{*}')", args) == first
    assert one(db, """SELECT pgsched.enqueue('t', '{"user": 7}', unique_by => '{user}')""") == by_user.enqueue(7)


def test_unique_by_keeps_tasks_apart(app: App) -> None:
    one_task, other = app.task(name="a")(lambda n: None), app.task(name="b")(lambda n: None)
    assert one_task.options(unique_by=True).enqueue(1) != other.options(unique_by=True).enqueue(1)


def test_unique_by_and_a_list_of_arguments(app: App) -> None:
    listed = app.task(name="t")(lambda *numbers: None)
    both = listed.options(unique_by=True)
    assert both.enqueue(1, 2) == both.enqueue(1, 2) != both.enqueue(2, 1)
    with pytest.raises(InputError, match="the arguments of this task have no names"):
        listed.options(unique_by=("numbers",))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("'{\"n\": 1}', unique_by => '{m}'", 'unique_by: the run has no argument "m", and it has no default'),
        ("'{\"n\": 1}', unique_by => '{}'", "unique_by: expected the names of arguments"),
        ("'{\"n\": 1}', unique_by => ARRAY[NULL]", "unique_by: expected the names of arguments"),
        ("'{\"n\": 1}', unique_by => '{n}', unique_key => 'k'", "unique_by: give either unique_key or unique_by"),
        ("('{\"n\": ' || repeat('[', 300) || repeat(']', 300) || '}')::jsonb, unique_by => '{*}'", "args: nested more"),
        (
            "('{\"n\": ' || repeat('[', 6000) || repeat(']', 6000) || '}')::jsonb, unique_by => '{n}'",
            "args: nested more",
        ),
        ("'{\"n\": 1}', debounce_max => '1 h'", "debounce_max: it bounds how far"),
        ("'{\"n\": 1}', expires => '1 h', expires_at => '2100-01-01Z'", "expires: give either expires or expires_at"),
        ("'{\"n\": 1}', expires_at => now() - interval '1 h'", "expires_at: .* is not later than the run is due"),
        ("'{\"n\": 1}', expires => '-1 h'", "expires: .* is less than"),
        ("'{\"n\": 1}', keep => '-1 h'", "keep: .* is less than"),
        ("'{\"n\": 1}', keep => '11 years'", "keep: .* is more than 10 years"),
        ("'{\"n\": 1}', backoff => 'constant'", 'backoff: "constant" is not one of'),
        ("'{\"n\": 1}', unique_key => 'k', unique_scope => 'sliding(1 month)'", "unique_scope: a period has no months"),
        ("'{\"n\": 1}', unique_key => 'k', unique_scope => 'sliding'", "unique_scope: .* is neither while_active nor"),
    ],
)
def test_wrong_options_are_refused_in_sql(db: psycopg.Connection, call: str, problem: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=problem):
        db.execute(f"SELECT pgsched.enqueue('t', {call})")


def test_nan_has_no_key(app: App) -> None:
    task = app.task(name="t", unique_by=True)(lambda n: None)
    with pytest.raises(TaskError, match="not JSON"):
        task.enqueue(float("nan"))


@pytest.mark.parametrize("text", ["{", "}", "{}", "{{n}}", '"', "\\", "\n", "\x01", "é" * 600, " a "])
def test_any_text_may_be_an_argument_of_a_key(app: App, text: str) -> None:
    task = app.task(name="t", unique_key="k {n}")(lambda n: None)
    assert task.enqueue(text) == task.enqueue(text) != task.enqueue(text + "x")


def test_two_sessions_that_enqueue_the_same_arguments_at_once_make_one_run(app: App, connect: Connect) -> None:
    from tests.support.db.setting import at_once

    task = app.task(name="t")(lambda n: None)
    calls = [task.options(unique_by=True, connection=connect()) for _ in range(6)]
    found = at_once([lambda call=call: call.enqueue(1) for call in calls])
    assert (len({*found}), sum(run.created for run in found)) == (1, 1)


# ---- many at once


def test_many_calls_have_a_key_each(app: App, db: psycopg.Connection) -> None:
    @app.task(name="t", unique_key="user {n}")
    def welcome(n: int, text: str = "") -> None: ...

    before = welcome.enqueue(3)
    assert welcome.enqueue_many({"n": n} for n in range(5)) == 4
    ids = welcome.enqueue_many([[4], {"n": 5}, [5]], return_ids=True)
    assert [run.how for run in ids] == ["existing", "created", "existing"]
    by_text = welcome.options(unique_by=("text",), on_conflict="replace")
    assert [run.how for run in by_text.enqueue_many([[8, "a"], [9, "a"]], return_ids=True)] == ["created", "replaced"]
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 7
    assert before == welcome.enqueue(3)


def test_many_calls_that_are_rejected_make_no_run(app: App, db: psycopg.Connection) -> None:
    from pgsched import AlreadyEnqueued

    task = app.task(name="t", unique_by=True, on_conflict="reject")(lambda n: None)
    task.enqueue(3)
    with pytest.raises(AlreadyEnqueued, match="unique_key: run 1 has this key already"):
        task.enqueue_many([[1], [2], [3]])
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 1


async def _ids(task: Any) -> Any:
    return await task.enqueue_many_async([[1], [2]], return_ids=True)


def test_many_calls_return_their_ids_in_order(app: App, db: psycopg.Connection) -> None:
    import asyncio

    task = app.task(name="t", priority=3)(lambda n: None)
    ids = [*task.enqueue_many(([n] for n in range(1200)), return_ids=True), *asyncio.run(_ids(task))]
    found = db.execute("SELECT id, args -> 'n', priority FROM pgsched.runs ORDER BY id").fetchall()
    assert [(run, n, 3) for run, n in zip(ids, [*range(1200), 1, 2], strict=True)] == found
    assert {run.how for run in ids} == {"created"}


def test_many_runs_are_made_again_after_a_deadlock(app: App, db: psycopg.Connection, connect: Connect) -> None:
    @app.task(unique_by=True)
    def load(n: int) -> None: ...

    other = connect(autocommit=False)
    other.execute("SET LOCAL deadlock_timeout = '30s'")  # so that the call is the one whose transaction is ended
    load.enqueue(2, connection=other)
    made = Aside(lambda: load.enqueue_many([[1], [2]], return_ids=True))
    wait_until_waits(db)
    load.enqueue(1, connection=other)
    other.commit()
    found = made.result()
    assert [run.how for run in found] == ["existing", "existing"]
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 2


def test_a_call_that_meets_one_deadlock_after_the_other_says_that_nothing_was_made(
    app: App, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(unique_by=True)
    def load(n: int) -> None: ...

    db.execute(
        "CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE 'deadlock detected' USING ERRCODE = 'deadlock_detected'; END $$;"
        "CREATE TRIGGER deadlock BEFORE INSERT ON pgsched.runs EXECUTE FUNCTION deadlock()"
    )
    monkeypatch.setattr("pgsched.db.enqueuer.DEADLOCK_PAUSES_S", (0.0, 0.0))
    with pytest.raises(LockTimeout, match=r"waited for each other.*nothing was done, try again.*deadlock detected"):
        load.enqueue_many([[1], [2]])
