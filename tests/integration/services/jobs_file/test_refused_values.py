"""What the database refuses: a plan finds it, the error has its place, and what is right is not refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from pgsched.errors import InputError
from pgsched.services.jobs_file.exporting import export
from pgsched.services.jobs_file.planning import Options, plan
from tests.support.files.applies import apply, column
from tests.support.files.jobs_files import file_of

pytestmark = pytest.mark.pg14
OPS = Options(owner="ops")


def test_jobs_may_change_places_in_the_order_in_which_they_wait(db: psycopg.Connection[Any]) -> None:
    apply(db, "jobs: {b: {task: t}, a: {task: t, after: [b]}}")
    for text in ("jobs: {b: {task: t, after: [a]}, a: {task: t}}", "jobs: {a: {task: t, after: [b]}, b: {task: t}}"):
        assert len(apply(db, text).changes) == 2
    apply(db, "jobs: {b: {task: t, after: [a]}, c: {task: t, after: [b]}, a: {task: t}}")
    apply(db, "jobs: {a: {task: t, after: [b]}, b: {task: t, after: [c]}, c: {task: t}}")
    parents = "SELECT p.name FROM pgsched.jobs j JOIN pgsched.jobs p ON p.id = ANY (j.after_jobs) ORDER BY j.name"
    assert column(db, parents) == ["b", "c"]


@pytest.mark.parametrize("text", ["jobs: {n: {task: t, keep: {}}}", "queues: {q: {keep: {}}}", "retention: {keep: {}}"])
def test_a_keep_of_nothing_is_as_the_file_says(db: psycopg.Connection[Any], text: str) -> None:
    assert len(apply(db, text).changes) == 1
    assert apply(db, text).changes == ()
    for file_format in ("yaml", "toml"):
        found = plan(db, file_of(export(db, file_format)[0], f"x.{file_format}"), OPS)
        assert found.difference.changes == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobs:\n  n: {task: t, schedule: '@every 5m', jitter: 10m, overlap: replace}",
         r"^jobs\.yaml:2: jobs\.n\.jitter: "),
        ("jobs:\n  once: {task: t, run_at: 2026-01-01 00:00Z}", r"^jobs\.yaml:2: jobs\.once\.run_at: .*already"),
        ("jobs:\n  n: {task: t, run_at: 2026-01-01 00:00Z}", r"^jobs\.yaml:2: jobs\.n\.run_at: .*already decided"),
        ("jobs:\n  old: {task: t, after: [mid]}", "the jobs wait for each other"),
    ],
)  # fmt: skip
def test_a_plan_finds_what_an_apply_would_refuse(db: psycopg.Connection[Any], text: str, problem: str) -> None:
    """The jobs between `mid` and `old` are in no file."""
    known = "once: {task: t, run_at: 2026-02-01 00:00Z}, old: {task: t}, n: {task: t, schedule: '@daily'}"
    apply(db, f"jobs: {{{known}}}")
    (old,) = column(db, "SELECT id FROM pgsched.jobs WHERE name = 'old'")
    between = jobs.add(db, {"name": "between", "task": "t", "after_jobs": [old]})
    jobs.add(db, {"name": "mid", "task": "t", "after_jobs": [between["id"]]})
    for act in (lambda: plan(db, file_of(text), OPS), lambda: apply(db, text)):
        with pytest.raises(InputError, match=problem):
            act()


def test_a_setting_that_the_database_refuses_is_named_with_its_place(db: psycopg.Connection[Any]) -> None:
    """What only a trigger of the user's own refuses."""
    db.execute("""CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.name = 'no' THEN RAISE check_violation USING MESSAGE = 'name: no'; END IF; RETURN NEW; END $$""")
    for table, text in (
        ("queues", "queues: {q: {fair: true},\n  no: {fair: true}}"),
        ("calendars", "calendars: {c: {},\n  no: {}}"),
        ("pauses", "pauses: [{what: all},\n  {what: task, name: no}]"),
    ):
        db.execute(f"CREATE TRIGGER no BEFORE INSERT ON pgsched.{table} FOR EACH ROW EXECUTE FUNCTION no()".encode())
        with pytest.raises(InputError, match=rf"^jobs\.yaml:2: {table}\S*: name: no"):
            apply(db, text)
