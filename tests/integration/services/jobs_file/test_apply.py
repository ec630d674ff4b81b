"""Apply a file: everything or nothing, a second time nothing, only what is its own, with few statements."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.core.jobs_file.difference import Action
from pgsched.core.jobs_file.model.entries import JobsFile
from pgsched.db.connection.connect import connect
from pgsched.db.queries.jobs import jobs
from pgsched.errors import InputError, LockTimeout, NotOwned, PgschedError
from pgsched.services.jobs_file import applying
from pgsched.services.jobs_file.planning import Options, plan
from tests.support.db.setting import cut
from tests.support.files.applies import actions, apply, column
from tests.support.files.jobs_files import file_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.pg14
OPS = Options(owner="ops")
EXAMPLE = """
jobs:
  load: {task: load, schedule: "0 1 * * *; 0 13 * * 1-5", timezone: Europe/Berlin}
  nightly: {kind: shell, task: ./report.sh, schedule: "0 2 * * *", after: [load], timeout: 90s, tags: [a, b],
            keep: {dead: 90 days}, excluded_dates: ["2026-12-24..2026-12-26: Christmas"], calendar: holidays}
  once: {task: once, run_at: 2090-01-01 00:00Z, alert_to: [ops], ping_url: "https://example.com/p"}
queues: {mail: {max_depth: 1000, rate: 100/m}}
limits: {customer: {concurrency: 2}}
pauses: [{what: queue, name: mail, reason: migration}]
calendars: {holidays: {times: [{from: 2026-12-25}, {weekdays: [sat, sun]}]}}
retention: {keep: {any: 9 days}, keep_audit: 2 years}
alerts: {finish_by: 12 hours, alert_to: [mail], dead_runs: 20}
"""


def test_everything_is_made_and_a_second_apply_changes_nothing(db: psycopg.Connection[Any]) -> None:
    assert actions(apply(db, EXAMPLE)) == ["add load", "add nightly", "add once", "add mail", "add customer",
                                           "add queue mail", "add holidays", "change everything",
                                           "change everything"]  # fmt: skip
    job = jobs.show_job(db, "nightly")
    (load,) = column(db, "SELECT id FROM pgsched.jobs WHERE name = 'load'")
    assert (job["after_jobs"], job["tags"], job["calendar"], job["kind"]) == ([load], ["a", "b"], "holidays", "shell")
    assert job["excluded"] == [["2026-12-24", "2026-12-26", "Christmas"]]
    assert column(db, "SELECT what || ' ' || name FROM pgsched.file_entries WHERE owner = 'ops' ORDER BY 1") == [
        "alerts everything", "calendar holidays", "job load", "job nightly", "job once", "limit customer",
        "pause queue mail", "queue mail", "retention everything"]  # fmt: skip
    assert column(db, "SELECT keep ->> 'any' FROM pgsched.retention") == ["9 days"]
    assert db.execute("SELECT finish_by::text, alert_to, dead_runs FROM pgsched.alert_defaults").fetchall() == [
        ("12:00:00", ["mail"], 20)]  # fmt: skip
    rows = "SELECT xmin::text FROM pgsched.{} ORDER BY 1"
    tables = ("jobs", "queues", "limits", "pauses", "calendars", "calendar_times", "retention", "alert_defaults",
              "file_owners")  # fmt: skip
    before = [column(db, rows.format(table)) for table in tables]
    assert apply(db, EXAMPLE, prune=True).changes == ()
    assert [column(db, rows.format(table)) for table in tables] == before


def test_what_differs_is_changed_and_what_is_gone_is_pruned(db: psycopg.Connection[Any]) -> None:
    apply(db, EXAMPLE)
    jobs.add(db, {"name": "by hand", "task": "t"})
    changed = """
jobs:
  load: {task: load, schedule: "30 1 * * *"}
  nightly: {kind: shell, task: ./report.sh, excluded_dates: [2026-12-25], schedule: "0 2 * * *"}
queues: {mail: {max_depth: 7}}
calendars: {holidays: {description: shut, times: [{weekdays: [sun]}]}}
"""
    first = apply(db, changed)
    assert actions(first) == ["change load", "change nightly", "change mail", "change holidays"]
    assert [name for _, name in first.left] == ["once", "customer", "queue mail", "everything", "everything"]
    job = jobs.show_job(db, "nightly")
    assert (job["after_jobs"], job["tags"], job["calendar"], job["timeout"]) == (None, None, None, None)
    assert job["excluded"] == [["2026-12-25", "2026-12-25", None]]
    assert column(db, "SELECT weekdays FROM pgsched.calendar_times") == [[0]]
    assert actions(apply(db, changed, prune=True)) == [
        "remove once", "remove customer", "remove queue mail", "remove everything", "remove everything"]  # fmt: skip
    assert column(db, "SELECT name FROM pgsched.jobs ORDER BY 1") == ["by hand", "load", "nightly"]
    assert column(db, "SELECT keep_audit::text FROM pgsched.retention") == ["400 days"]
    assert column(db, "SELECT num_nonnulls(finish_by, alert_to, dead_runs) FROM pgsched.alert_defaults") == [0]
    assert column(db, "SELECT count(*) FROM pgsched.file_entries") == [4]
    assert apply(db, changed, prune=True).changes == ()
    assert actions(apply(db, "jobs: {}", prune=True)) == [
        "remove load",
        "remove nightly",
        "remove mail",
        "remove holidays",
    ]
    assert column(db, "SELECT count(*) FROM pgsched.file_entries") == [0]


def test_what_is_not_its_own_is_refused_and_nothing_is_changed(db: psycopg.Connection[Any]) -> None:
    jobs.add(db, {"name": "n", "task": "by hand"})
    for text, reason in (("jobs: {a: {task: t}, n: {task: t}}", "job n: it exists, and no file declares it"),):
        with pytest.raises(NotOwned, match=reason):
            apply(db, text)
    assert column(db, "SELECT task FROM pgsched.jobs") == ["by hand"]
    assert actions(apply(db, "jobs: {n: {task: t}}", adopt=True)) == ["change n"]
    with pytest.raises(NotOwned, match='the file of owner "ops" declares it'):
        apply(db, "jobs: {n: {task: u}}", owner="dev")
    assert actions(apply(db, "jobs: {n: {task: u}}", owner="dev", adopt=True)) == ["change n"]
    assert column(db, "SELECT owner FROM pgsched.file_entries") == ["dev"]
    assert apply(db, "jobs: {}", prune=True).changes == ()  # it is no more the file's own


def test_an_operator_s_pause_stays_unless_the_file_decides(db: psycopg.Connection[Any]) -> None:
    apply(db, "jobs: {n: {task: t, schedule: '@daily'}}")
    jobs.pause(db, "n", "incident")
    assert actions(apply(db, "jobs: {n: {task: u, schedule: '@daily'}}")) == ["change n"]
    assert column(db, "SELECT paused_reason FROM pgsched.jobs") == ["incident"]
    assert actions(apply(db, "jobs: {n: {task: u, schedule: '@daily', paused: false, resume_from: pause}}")) == [
        "change n"
    ]
    assert column(db, "SELECT paused FROM pgsched.jobs") == [False]


def test_a_job_that_runs_once_keeps_its_time(db: psycopg.Connection[Any]) -> None:
    apply(db, "jobs: {n: {task: t}}")
    at = column(db, "SELECT run_at FROM pgsched.jobs")
    assert apply(db, "jobs: {n: {task: t}}").changes == ()
    assert actions(apply(db, "jobs: {n: {task: u}}")) == ["change n"]
    assert column(db, "SELECT run_at FROM pgsched.jobs") == at


def test_what_the_database_refuses_names_the_place_and_changes_nothing(db: psycopg.Connection[Any]) -> None:
    text = "jobs:\n  a: {task: t}\n  b: {kind: http, task: t}\n"
    for act in (lambda: plan(db, file_of(text), OPS), lambda: apply(db, text)):
        with pytest.raises(InputError, match=r"^jobs\.yaml:3: jobs\.b\.task: "):
            act()
    assert column(db, "SELECT name FROM pgsched.jobs UNION SELECT name FROM pgsched.file_owners") == []


def test_a_refusal_in_the_middle_names_the_job_and_leaves_nothing(db: psycopg.Connection[Any]) -> None:
    """What only a trigger of the table refuses, such as a user's own."""
    db.execute("""CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.name = 'n37' THEN RAISE check_violation USING MESSAGE = 'task: no'; END IF; RETURN NEW; END $$""")
    db.execute("CREATE TRIGGER no BEFORE INSERT ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION no()")
    with pytest.raises(InputError, match=r"^job n37: task: no"):
        apply(db, "queues: {q: {fair: true}}\njobs:\n" + "".join(f"  n{n}: {{task: t}}\n" for n in range(100)))
    assert column(db, "SELECT name FROM pgsched.jobs UNION SELECT name FROM pgsched.queues") == []


def test_entries_follow_jobs_that_people_rename_and_go_with_those_that_they_delete(db: psycopg.Connection[Any]) -> None:
    apply(db, "jobs: {a: {task: t}, b: {task: t}}\ncalendars: {c: {}, d: {}}")
    db.execute("UPDATE pgsched.jobs SET name = 'z' WHERE name = 'a'; DELETE FROM pgsched.jobs WHERE name = 'b'")
    db.execute(
        "UPDATE pgsched.calendars SET name = 'y' WHERE name = 'c'; DELETE FROM pgsched.calendars WHERE name = 'd'"
    )
    assert column(db, "SELECT what || ' ' || name FROM pgsched.file_entries ORDER BY 1") == ["calendar y", "job z"]
    assert actions(apply(db, "jobs: {b: {task: t}}", prune=True)) == ["add b", "remove z", "remove y"]


def test_a_job_that_has_deleted_itself_is_not_made_again(db: psycopg.Connection[Any]) -> None:
    text = "jobs: {n: {task: t, run_at: 2026-01-01 00:00Z, delete_after_run: true}}"
    assert actions(apply(db, text)) == ["add n"]
    db.execute("SELECT set_config('pgsched.ticks', 'on', false)")
    db.execute("UPDATE pgsched.jobs SET next_run_at = NULL")
    db.execute("DELETE FROM pgsched.jobs")
    assert apply(db, text).changes == ()
    later = text.replace("2026-01", "2090-01")  # it is to run once more
    assert actions(apply(db, later)) == ["add n"]
    db.execute("UPDATE pgsched.jobs SET next_run_at = NULL")
    db.execute("DELETE FROM pgsched.jobs")
    assert apply(db, later).changes == ()
    assert column(db, "SELECT what || ' ' || name FROM pgsched.file_entries") == ["done n"]
    assert apply(db, "jobs: {}", prune=True).gone != ()
    assert column(db, "SELECT count(*) FROM pgsched.file_entries") == [0]


def test_a_plan_that_was_confirmed_is_the_one_that_is_applied(db: psycopg.Connection[Any]) -> None:
    file = file_of("jobs: {n: {task: t}}")
    shown = applying.find_drift(db, file, OPS)
    apply(db, "jobs: {n: {task: u}}")
    with pytest.raises(PgschedError, match="has changed since the plan was shown"):
        applying.apply(db, file, OPS, confirmed=shown)
    assert column(db, "SELECT task FROM pgsched.jobs") == ["u"]


def test_a_plan_writes_nothing(db: psycopg.Connection[Any]) -> None:
    found = plan(db, file_of(EXAMPLE), OPS)
    assert len(found.difference.of(Action.ADD)) == 7
    assert [len(found.slots[key].new) for key in found.slots] == [5, 5, 1]
    assert found.clocks == {}  # no slot lies in an hour that is skipped or comes twice
    for table in ("jobs", "queues", "calendars", "file_owners", "audit"):
        assert column(db, f"SELECT count(*) FROM pgsched.{table}") == [0]


# ---- two at the same time


def start_apply(dsn: str, file: JobsFile, ended: list[Any], **options: Any) -> threading.Thread:
    def work() -> None:
        with connect(dsn) as conn:
            try:
                ended.append(applying.apply(conn, file, Options(**{"owner": "ops"} | options)))
            except PgschedError as error:
                ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def waits(db: psycopg.Connection[Any]) -> bool:
    return bool(
        column(
            db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )[0]
    )


Open = Callable[..., psycopg.Connection[Any]]


def begun(connect: Open) -> psycopg.Connection[Any]:
    """Return a connection with a transaction, in which an apply is only a part of it."""
    conn = connect()
    conn.execute("BEGIN")
    return conn


def test_the_second_of_two_applies_waits_and_compares_anew(
    db: psycopg.Connection[Any], dsn: str, connect: Open
) -> None:
    apply(db, "jobs: {a: {task: t}}")
    first, ended = begun(connect), list[Any]()
    apply(first, "jobs: {a: {task: u}, b: {task: u}}")
    second = start_apply(dsn, file_of("jobs: {a: {task: v}}"), ended, prune=True)
    wait_until(lambda: waits(db), what="the second apply to wait for the first")
    first.commit()
    second.join(30)
    assert actions(ended[0]) == ["change a", "remove b"]
    assert column(db, "SELECT name || task FROM pgsched.jobs") == ["av"]


def test_without_its_lock_two_applies_would_mix(
    db: psycopg.Connection[Any], dsn: str, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one would not see the job that the first adds, and leave it."""
    apply(db, "jobs: {a: {task: t}}")
    cut(monkeypatch, "file_owner_lock", "FOR NO KEY UPDATE")
    # this one locks the row too, but not before the end
    cut(monkeypatch, "file_owner_applied", "clock_timestamp() WHERE", "NULL WHERE false AND")
    first, ended = begun(connect), list[Any]()
    apply(first, "jobs: {a: {task: t}, b: {task: u}}")
    start_apply(dsn, file_of("jobs: {a: {task: v}}"), ended, prune=True).join(30)
    assert actions(ended[0]) == ["change a"]
    first.commit()
    assert column(db, "SELECT name || task FROM pgsched.jobs ORDER BY 1") == ["av", "bu"]  # half of each


def test_two_first_applies_take_turns_too(db: psycopg.Connection[Any], dsn: str, connect: Open) -> None:
    first, ended = begun(connect), list[Any]()
    apply(first, "jobs: {a: {task: t}}")
    second = start_apply(dsn, file_of("jobs: {a: {task: t}}"), ended)
    wait_until(lambda: waits(db), what="the second apply to wait for the first")
    first.commit()
    second.join(30)
    assert ended[0].changes == ()


def test_owners_that_add_the_same_job_do_not_both_get_it(db: psycopg.Connection[Any], dsn: str, connect: Open) -> None:
    first, ended = begun(connect), list[Any]()
    apply(first, "jobs: {a: {task: t}, b: {task: t}}")
    second = start_apply(dsn, file_of("jobs: {c: {task: u}, b: {task: u}}"), ended, owner="dev")
    wait_until(lambda: waits(db), what="the second apply to wait for the first")
    first.commit()
    second.join(30)
    assert "job b: name: it is taken" in str(ended[0])
    assert column(db, "SELECT name || task FROM pgsched.jobs ORDER BY 1") == ["at", "bt"]


def test_an_apply_that_waits_too_long_says_so(
    db: psycopg.Connection[Any], dsn: str, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pgsched.db.queries.files import stored

    monkeypatch.setattr(stored, "TURN_WAIT", "50ms")
    first, ended = begun(connect), list[Any]()
    apply(first, "jobs: {a: {task: t}}")
    start_apply(dsn, file_of("jobs: {a: {task: u}}"), ended).join(30)
    assert isinstance(ended[0], LockTimeout)
    assert str(ended[0]) == 'another apply with owner "ops" has not ended for 50ms: try again'


# ---- how many statements


class Counting:
    """A connection that counts the statements that pass through it."""

    def __init__(self, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        execute = psycopg.Cursor.execute

        def counted(cursor: Any, *args: Any, **options: Any) -> Any:
            self.count += cursor.connection is conn
            return execute(cursor, *args, **options)

        monkeypatch.setattr(psycopg.Cursor, "execute", counted)


@pytest.mark.long
def test_the_number_of_statements_does_not_depend_on_the_number_of_jobs(
    db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(jobs: int, task: str) -> str:
        return "jobs:\n" + "".join(
            f"  n{jobs}-{n}: {{task: {task}, schedule: '{n % 60} 2 * * *', after:"
            f" [{f'n{jobs}-{n - 1}' if n % 7 else ''}],"
            f" excluded_dates: [2026-12-2{n % 9}]}}\n" for n in range(jobs))  # fmt: skip

    counting, counts = Counting(db, monkeypatch), []
    for jobs_of_file in (3, 300):
        for task in ("t", "u"):
            counting.count = 0
            apply(db, text(jobs_of_file, task), owner=f"o{jobs_of_file}", adopt=True)
            counts.append(counting.count)
        counting.count = 0
        plan(db, file_of(text(jobs_of_file, "v")), Options(owner=f"o{jobs_of_file}"))
        counts.append(counting.count)
    assert counts[:3] == counts[3:]
    assert max(counts) <= 30
