"""Output, log lines and progress of Python handlers are stored for their own run, wherever the handlers run."""

from __future__ import annotations

import sys

import psycopg
import pytest

from pgsched.app.base import import_app
from tests.support.working import CAP, LEFT_OUT, add, all_ended, output, work

app = import_app("tests.support.apps.talking:app")


def ran(dsn: str, db: psycopg.Connection, task: str, **args: object) -> int:
    run_id = add(db, "task", task, args)
    work(dsn, app, lambda: all_ended(db))
    return run_id


@pytest.mark.few(2)
@pytest.mark.parametrize("task", ["in_thread", "on_loop", "in_process", "process_on_loop"])
def test_prints_and_logs_of_a_handler_are_kept(
    task: str, dsn: str, db: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")  # pgsched leaves the level alone where logging is set up, as by pytest
    run_id = ran(dsn, db, task, word="it")
    everything = output(db, run_id)
    assert "it printed\n" in output(db, run_id, "stdout")
    assert "it complained\n" in output(db, run_id, "stderr")
    for word in ("logged", "warned", "structured"):
        assert everything.count(f"it {word}") == 1, word
    for word in {"on_loop": ("task", "thread"), "process_on_loop": ("task",)}.get(task, ()):
        assert f"it from its {word}\n" in everything


def test_output_is_not_kept_unless_asked_for(dsn: str, db: psycopg.Connection) -> None:
    assert output(db, ran(dsn, db, "silent", word="it")) == ""


def test_output_that_is_kept_still_goes_to_its_stream(
    dsn: str, db: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(dsn, db, "in_thread", word="it")
    out, err = capsys.readouterr()
    assert "it printed\n" in out and "it complained\n" in err
    assert "it structured" in out + err


def test_the_streams_are_left_as_they_were_found(dsn: str, db: psycopg.Connection) -> None:
    import logging

    before = sys.stdout, sys.stderr, logging.getLogger().level, list(logging.getLogger().handlers)
    ran(dsn, db, "in_thread", word="it")
    assert (sys.stdout, sys.stderr, logging.getLogger().level, list(logging.getLogger().handlers)) == before


@pytest.mark.parametrize("task", ["meets", "takes_turns"])
def test_the_output_of_two_handlers_at_once_is_kept_apart(task: str, dsn: str, db: psycopg.Connection) -> None:
    one, two = (add(db, "task", task, {"word": word}) for word in ("one", "two"))
    work(dsn, app, lambda: all_ended(db))
    for run_id, word in ((one, "one"), (two, "two")):
        assert output(db, run_id, "stdout") == "".join(f"{word} {n}\n" for n in range(50))


def test_a_failed_handlers_evidence_holds_its_output(dsn: str, db: psycopg.Connection) -> None:
    run_id = ran(dsn, db, "fails")
    assert db.execute("SELECT log_tail FROM pgsched.attempts").fetchone() == ("before it failed\n",)
    assert output(db, run_id) == "before it failed\n"


@pytest.mark.long
def test_the_output_of_a_child_that_died_is_kept(dsn: str, db: psycopg.Connection) -> None:
    run_id = ran(dsn, db, "dies")
    assert output(db, run_id) == "before it died\n"
    row = db.execute("SELECT outcome, log_tail FROM pgsched.attempts").fetchone()
    assert row == ("crashed", "before it died\n")


@pytest.mark.long
def test_a_flood_from_a_child_is_cut_and_counted(dsn: str, db: psycopg.Connection) -> None:
    text = output(db, ran(dsn, db, "floods", mb=20))
    head, n_bytes, n_lines, tail = LEFT_OUT.split(text)
    assert tail.endswith(f"{199_999:09d}" + "x" * 90 + "\n") and head.startswith("000000000x")
    assert len(head) + len(tail) <= CAP
    assert len(head) + len(tail) + int(n_bytes.replace(",", "")) == 20_000_000
    assert (head + tail).count("\n") + int(n_lines.replace(",", "")) == 200_000


@pytest.mark.long
@pytest.mark.parametrize("task", ["told", "told_in_thread", "told_on_loop"])
def test_a_million_reports_of_progress_make_few_writes(task: str, dsn: str, db: psycopg.Connection) -> None:
    db.execute(
        "CREATE TABLE public.writes (run_id bigint);"
        "CREATE FUNCTION public.written() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO public.writes VALUES (NEW.id); RETURN NULL; END';"
        "CREATE TRIGGER written AFTER UPDATE OF progress ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION public.written()"
    )
    run_id = ran(dsn, db, task, count=1_000_000)
    progress = db.execute("SELECT progress FROM pgsched.runs").fetchone()
    assert progress is not None and progress[0].pop("at")
    assert progress[0] == {"done": 1_000_000, "total": 1_000_000, "note": "counting", "attempt": 1}
    row = db.execute("SELECT count(*) FROM public.writes").fetchone()
    assert row is not None and 1 <= row[0] <= 30
    assert output(db, run_id, "log") == "counted n=1000000\n"


@pytest.mark.long
def test_output_that_was_printed_before_a_fork_is_kept_once(dsn: str, db: psycopg.Connection) -> None:
    assert output(db, ran(dsn, db, "forks"), "stdout") == "line 0\nline 1\nline 2\nlast\n"


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["told_oddly", "told_oddly_in_thread"])
@pytest.mark.parametrize(
    ("note", "shown"),
    [
        ("unprintable", "<Unprintable: its text raises RuntimeError>"),
        ("path", "/tmp"),
        ("long", "x" * 200),
    ],
)
def test_progress_in_types_other_than_json_fails_neither_run_nor_worker(
    task: str, note: str, shown: str, dsn: str, db: psycopg.Connection
) -> None:
    run_id = ran(dsn, db, task, note=note)
    row = db.execute("SELECT state, result, progress - 'at' FROM pgsched.runs").fetchone()
    assert row == ("succeeded", "done", {"done": 4, "total": 10, "note": shown, "attempt": 1})
    assert output(db, run_id, "log") == "told\n"


@pytest.mark.parametrize(("done", "total"), [(-1, None), (float("nan"), 1), (1, float("inf")), (1, -5)])
def test_a_progress_that_is_no_finite_number_from_0_on_is_refused(done: float, total: float | None) -> None:
    from pgsched.execute.output.record import Journal, Record

    with pytest.raises(ValueError, match="progress: expected finite numbers"):
        Record(Journal(), (1, 1), 1).progress(done, total, None)


def test_a_progress_that_is_a_text_is_refused_with_the_way_to_give_one() -> None:
    from pgsched.execute.output.record import Journal, Record

    with pytest.raises(TypeError, match=r"progress: expected numbers, got 0\.5 and 'half'; a text is note="):
        Record(Journal(), (1, 1), 1).progress(0.5, "half", None)  # type: ignore[arg-type]
