"""`pgsched prune` and `pgsched retention`, and the options that say how long runs are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import connect as connect_to
from pgsched.leader.pruner import Pruner
from pgsched.services import pruning
from tests.support.db.pruning import count, ended, left, slots_of
from tests.support.db.pruning import keep as set_keep

Call = Callable[..., Any]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_dry_run_counts_the_runs_and_deletes_none(pgsched: Call, db: psycopg.Connection) -> None:
    ended(db, "30 days", n=3)
    ended(db, "30 days", "dead", "loud", 2)
    ended(db, "1 hour")
    said = pgsched("prune", "--dry-run")
    assert (said.code, said.out.splitlines()[-1]) == (0, "5 runs would go")
    assert pgsched("prune", "--dry-run", "--json").json["would_delete"] == 5
    assert sum(left(db).values()) == 6
    assert pgsched("prune").out == "deleted 5 runs\n"
    assert left(db) == {"succeeded default": 1}
    assert pgsched("prune", "--json").json == {"deleted": 0, "archive": None, "not_counted_s": None, "refused": [],
                                              "gave_up": False}  # fmt: skip


def test_pruned_runs_are_archived_in_a_file_with_their_attempts(
    pgsched: Call, db: psycopg.Connection, tmp_path: Path
) -> None:
    file = tmp_path / "runs.jsonl"
    slots_of(db, "hourly", "30 days", 4, "dead")
    db.execute("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, error)"
               " SELECT id, gen_random_uuid(), 1, 'failed', 'é' FROM pgsched.runs")  # fmt: skip
    said = pgsched("prune", "--archive", str(file))
    assert said.out == f"deleted 3 runs, each is a line of {file}\n"
    assert [run["attempts"][0]["error"] for run in lines(file)] == ["é"] * 3
    ended(db, "30 days")
    pgsched("prune", "--archive", str(file))
    assert len(lines(file)) == 4, "a later one is appended"


def test_a_run_that_was_archived_but_not_deleted_is_in_the_file_once(
    dsn: str, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "runs.jsonl"
    ended(db, "30 days", n=7)
    monkeypatch.setattr(pruning, "ARCHIVE_BATCH", 3)
    keep, batches = pruning.ArchiveFile.keep, []

    def cut_off(self: pruning.ArchiveFile, rows: list[Any]) -> None:
        keep(self, rows)
        batches.append(rows)
        if len(batches) == 2:
            self._file.write(b'{"id": 1, "half a li')
            self._file.flush()
            raise RuntimeError("the power went")

    monkeypatch.setattr(pruning.ArchiveFile, "keep", cut_off)
    with connect_to(dsn) as conn, pytest.raises(RuntimeError):
        pruning.prune_all(conn, str(file))
    assert (file.read_bytes().count(b"\n"), sum(left(db).values())) == (6, 4), "three were written and are still there"
    monkeypatch.setattr(pruning.ArchiveFile, "keep", keep)
    with connect_to(dsn) as conn:
        pruning.prune_all(conn, str(file))
    ids = [run["id"] for run in lines(file)]
    assert (len(ids), len(set(ids)), left(db)) == (7, 7, {})


def test_lines_of_undeleted_runs_are_removed_for_every_retention_time(
    dsn: str, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction may have a batch for each retention time, so its lines can be more than one batch."""
    file = tmp_path / "runs.jsonl"
    set_keep(db, any="1 hour", dead="2 hours")
    ended(db, "31 days", "dead", n=4)
    ended(db, "30 days", n=2)
    monkeypatch.setattr(pruning, "ARCHIVE_BATCH", 4)
    work = Pruner.prune_batch

    def cut_off(self: Pruner, *given: Any) -> int:
        if work(self, *given):
            raise RuntimeError("the power went")
        return 0

    monkeypatch.setattr(Pruner, "prune_batch", cut_off)
    with connect_to(dsn) as conn, pytest.raises(RuntimeError):
        pruning.prune_all(conn, str(file))
    assert lines(file), "something was written"
    assert sum(left(db).values()) == 6, "and is still there"
    monkeypatch.setattr(Pruner, "prune_batch", work)
    with connect_to(dsn) as conn:
        pruning.prune_all(conn, str(file))
    ids = [run["id"] for run in lines(file)]
    assert (len(ids), len(set(ids)), left(db)) == (6, 6, {})


def test_an_open_transaction_that_writes_runs_delays_the_pruning(
    pgsched: Call, db: psycopg.Connection, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PATIENCE_S", 0.2)
    ended(db, "30 days")
    writer = connect(autocommit=False)
    writer.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    said = pgsched("prune")
    assert (said.out, "is not counted yet and stays" in said.err) == ("deleted 0 runs\n", True)
    writer.rollback()
    assert pgsched("prune").out == "deleted 1 runs\n"


def refer(db: psycopg.Connection, *runs: int, when: str = "") -> None:
    """Create a user's table whose foreign key keeps these runs."""
    db.execute(f"CREATE TABLE public.mine (run bigint REFERENCES pgsched.runs {when})".encode())
    db.execute("INSERT INTO public.mine SELECT unnest(%s::bigint[])", [[*runs]])


def test_a_run_that_cannot_be_deleted_stops_no_other_run(pgsched: Call, db: psycopg.Connection) -> None:
    ended(db, "30 days", n=40)
    ended(db, "31 days", "dead", n=3)
    refer(db, 7, 42)
    said = pgsched("prune")
    assert (said.code, said.out) == (1, "deleted 41 runs\n")
    kept, why = said.err.splitlines(), "stays, the database refuses to delete it: update or delete on table"
    assert [line.startswith(f"run {run} {why}") for run, line in zip((42, 7), sorted(kept), strict=True)] == [True] * 2
    assert db.execute("SELECT array_agg(id ORDER BY id) FROM pgsched.runs").fetchone() == ([7, 42],)
    again = pgsched("prune", "--json")
    assert (again.code, again.json["deleted"], [one["run"] for one in again.json["refused"]]) == (1, 0, [42, 7])
    db.execute("DROP TABLE public.mine")
    assert pgsched("prune").out == "deleted 2 runs\n"


def test_control_characters_in_the_error_of_a_trigger_are_escaped(pgsched: Call, db: psycopg.Connection) -> None:
    ended(db, "30 days")
    db.execute("CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS $$"
               " BEGIN RAISE EXCEPTION E'not \\x1b[2J this one'; END $$")  # fmt: skip
    db.execute("CREATE TRIGGER no BEFORE DELETE ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION public.no()")
    said = pgsched("prune")
    assert (said.code, said.err) == (1, "run 1 stays, the database refuses to delete it: not \\x1b[2J this one\n")


def test_a_run_that_a_commit_refuses_to_delete_is_not_in_the_file(
    pgsched: Call, db: psycopg.Connection, tmp_path: Path
) -> None:
    file = tmp_path / "runs.jsonl"
    set_keep(db, any="1 hour", dead="2 hours")
    ended(db, "30 days", n=10)
    ended(db, "31 days", "dead", n=3)
    refer(db, 7, when="DEFERRABLE INITIALLY DEFERRED")
    assert pgsched("prune", "--archive", str(file)).code == 1
    assert sorted(run["id"] for run in lines(file)) == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]
    assert sum(left(db).values()) == 1


def test_archived_lines_stay_if_the_answer_to_the_commit_is_lost(
    dsn: str, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit took effect, so the lines are all that is left of the runs."""
    file = tmp_path / "runs.jsonl"
    ended(db, "30 days", n=7)
    monkeypatch.setattr(pruning, "ARCHIVE_BATCH", 3)

    with connect_to(dsn) as conn:
        transaction, count_all = conn.transaction, pruning.count_all

        @contextmanager
        def unanswered() -> Iterator[object]:
            with transaction() as begun:
                yield begun
            conn.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        def counted(given: Any) -> float | None:
            found = count_all(given)
            monkeypatch.setattr(conn, "transaction", unanswered)
            return found

        monkeypatch.setattr(pruning, "count_all", counted)
        with pytest.raises(psycopg.OperationalError):
            pruning.prune_all(conn, str(file))
    assert (len(lines(file)), sum(left(db).values())) == (3, 4)
    monkeypatch.setattr(pruning, "count_all", count_all)
    with connect_to(dsn) as conn:
        pruning.prune_all(conn, str(file))
    assert sorted(run["id"] for run in lines(file)) == list(range(1, 8))


def test_pruning_gives_up_if_the_first_runs_are_all_refused(pgsched: Call, db: psycopg.Connection) -> None:
    ended(db, "30 days", n=40)
    refer(db, *range(1, 41))
    said = pgsched("prune")
    *kept, last = said.err.splitlines()
    assert (said.code, said.out, len(kept)) == (1, "deleted 0 runs\n", pruning.FEW)
    assert all("stays, the database refuses to delete it" in line for line in kept)
    assert last.startswith("error: so many runs are refused that the others were not tried")
    again = pgsched("prune", "--json")
    assert (again.code, again.json["gave_up"], len(again.json["refused"])) == (1, True, pruning.FEW)
    assert sum(left(db).values()) == 40


def test_the_runs_of_a_failed_batch_are_pruned_again(dsn: str, db: psycopg.Connection) -> None:
    """The rollback restores the runs of every retention time, so the pruner reads all of them again."""
    set_keep(db, any="1 hour", dead="2 hours")
    ended(db, "30 days", n=2)
    ended(db, "31 days", "dead")
    refer(db, 3)
    count(db)
    pruner = Pruner()
    with connect_to(dsn) as conn:
        with pytest.raises(psycopg.errors.ForeignKeyViolation), conn.transaction():
            pruner.prune_batch(conn, 100)
        pruner.restore_position()
        db.execute("DROP TABLE public.mine")
        with conn.transaction():
            assert pruner.prune_batch(conn, 100) == 3


def test_an_archive_file_that_cannot_be_written_gives_one_line(pgsched: Call) -> None:
    said = pgsched("prune", "--archive", "/nowhere/runs.jsonl")
    assert (said.code, said.err) == (2, "error: archive: cannot write /nowhere/runs.jsonl: No such file or directory\n")


@pytest.mark.parametrize("held", ["a: 1\nb: 2\n", "no line", '{"name": "x"}\n', '{"id": 1}\nnotes\n'])
def test_a_file_that_is_no_archive_is_left_unchanged(
    pgsched: Call, db: psycopg.Connection, tmp_path: Path, held: str
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(held)
    ended(db, "30 days")
    said = pgsched("prune", "--archive", str(file))
    assert (said.code, said.err) == (2, f"error: archive: {file} holds something else: name a new file\n")
    assert file.read_text() == held
    assert sum(left(db).values()) == 1, "nothing was deleted"


def test_settings_are_shown_and_set(pgsched: Call, db: psycopg.Connection) -> None:
    assert pgsched("retention", "set", "--keep", "2d", "--keep", "dead=90d", "--archive").out == (
        "runs: dead 90 days, any other 2 days; archived\n"
    )
    assert pgsched("retention", "set", "--keep", "dead=90d").out == (
        "runs: dead 90 days, any other 7 days; archived\n"
    ), "what is not said is the default"
    assert pgsched("retention", "set", "--keep-minutes", "1d", "--keep-hours", "800d").out == (
        "runs: dead 90 days, any other 7 days; archived\nfigures by minute: 1d\nfigures by hour: 800d\n"
    )
    pgsched("queue", "set", "loud", "--keep", "1h")
    pgsched("job", "add", "nightly", "--task", "t", "--keep", "succeeded=1d", "--keep", "30d")
    shown = pgsched("retention", "show").out
    assert "pgsched.archived_runs" in shown
    assert "queue  loud     all 1 hour" in shown
    assert "job    nightly  succeeded 1 day, any other 30 days" in shown
    pgsched("job", "update", "nightly", "--keep", "dead=1d")
    assert db.execute("SELECT keep FROM pgsched.jobs").fetchone() == ({"dead": "86400 seconds"},)
    pgsched("job", "update", "nightly", "--set", "keep=")
    pgsched("queue", "set", "loud", "--keep", "none")
    assert pgsched("retention", "show", "--json").json["jobs"] == []
    assert db.execute("SELECT keep FROM pgsched.queues").fetchone() == (None,)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("retention", "set"), "say what"),
        (("retention", "set", "--keep-hours", "1h"), "keep-hours: 1h is not between 1 day and 100 years"),
        (("retention", "set", "--keep-minutes", "1m"), "keep-minutes: 1m is not between 1 hour and 10 years"),
        (("retention", "set", "--keep-minutes", "3601d"), "keep-minutes: 3601d is not between 1 hour and 10 years"),
        (("retention", "set", "--keep-audit", "1h"), "keep-audit: 1h is not between 1 day and 1000 years"),
        (("retention", "set", "--keep", "soon"), 'keep: "soon" is not a time'),
        (("retention", "set", "--keep", "failed=1d"), 'keep: "failed" is not one of'),
        (("retention", "set", "--keep", "1d", "--keep", "2d"), "keep: any is given twice"),
        (("job", "add", "x", "--task", "t", "--set", "keep=[]"), "keep: expected an object"),
        (
            ("job", "add", "x", "--task", "t", "--alert-after-failures", "1001"),
            "alert_after_failures: 1001 is out of range",
        ),
        (("job", "add", "x", "--task", "t", "--expect-every", "1 ms"), "expect_every: "),
    ],
)
def test_a_wrong_setting_gives_one_line(pgsched: Call, args: tuple[str, ...], said: str) -> None:
    found = pgsched(*args)
    assert (found.code, said in found.err, found.err.count("\n")) == (2, True, 1), found.err
