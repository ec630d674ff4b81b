"""Dead runs on the command line: find, show, retry or cancel many of them, and never by accident."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

Pgsched = Callable[..., object]
WHY = "connection refused"


@pytest.fixture
def letters(db: psycopg.Connection) -> psycopg.Connection:
    """Add twelve dead runs of `send`, ten minutes old, and one of `build`, five days old."""
    db.execute(
        "INSERT INTO pgsched.runs (task, queue, state, error, finished_at)"
        " SELECT 'send', 'mail', 'dead', %s, now() - interval '10 minutes' FROM generate_series(1, 12)",
        [WHY],
    )
    db.execute(
        "INSERT INTO pgsched.runs (task, state, error, created_at, finished_at)"
        " VALUES ('build', 'dead', 'no', now() - interval '5 days', now() - interval '5 days')"
    )
    return db


def queued(db: psycopg.Connection) -> int:
    row = db.execute("SELECT count(*) FROM pgsched.runs WHERE state = 'queued'").fetchone()
    assert row is not None
    return int(row[0])


def test_a_dry_run_says_how_many_and_which_and_changes_nothing(pgsched: Pgsched, letters: psycopg.Connection) -> None:
    said = pgsched("run", "retry", "--error", "REFUSED", "--dry-run")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("retry: 12 runs\n")
    assert said.out.count(WHY) == 12
    assert pgsched("run", "retry", "--queue", "mail", "--dry-run", "--json").json["ids"] == [*range(1, 13)]
    assert queued(letters) == 0


def test_many_runs_are_retried_only_with_yes(pgsched: Pgsched, letters: psycopg.Connection) -> None:
    said = pgsched("run", "retry", "--state", "dead")
    assert (said.code, said.err) == (2, "error: retry 13 runs? Add --yes, or --dry-run to see them\n")
    assert queued(letters) == 0
    assert pgsched("run", "retry", "--error", WHY, "--yes").out == "retried 12 of 12 runs\n"
    assert queued(letters) == 12


def test_runs_are_chosen_by_the_time_of_their_end(pgsched: Pgsched, letters: psycopg.Connection) -> None:
    assert pgsched("run", "retry", "--ended-until", "1d").out == "retried 1 of 1 runs\n"
    assert pgsched("run", "retry", "--ended-since", "1h", "--limit", "2", "--json").json["retried"] == 2
    assert len(pgsched("run", "list", "--state", "dead", "--ended-since", "1h", "--json").json) == 10


def test_a_retry_by_ids_reports_the_runs_that_it_left_alone(pgsched: Pgsched, letters: psycopg.Connection) -> None:
    said = pgsched("run", "retry", "1", "2", "99")
    assert said.code == 1
    assert said.out == "retried 2 of 3 runs\nleft alone: 99: there is no such run\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["retry"], "nothing to retry: name runs by id, or by a filter such as --job, --queue or --state"),
        (["cancel"], "nothing to cancel: name runs by id, or by a filter such as --job, --queue or --state"),
        (["retry", "1", "--queue", "mail"], "name runs either by id or by filters, not by both"),
        (["retry", "1", "2", "--queue", "mail"], "name runs either by id or by filters, not by both"),
        (["retry", "--state", "running"], "state: a run that is running cannot be retried; dead, "),
        (["cancel", "--state", "dead"], "state: a run that is dead cannot be cancelled; waiting, "),
        (["retry", "--state", "lost"], 'state: a run that is lost cannot be retried'),
        (["retry", "--kind", "magic"], 'kind: "magic" is not one of'),
        (["retry", "--since", "soon"], 'since: "soon" is not a time'),
    ],
)  # fmt: skip
def test_an_unclear_choice_of_runs_is_refused(
    pgsched: Pgsched, letters: psycopg.Connection, args: list[str], said: str
) -> None:
    found = pgsched("run", *args)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"error: {said}")
    assert queued(letters) == 0


def test_many_are_cancelled_by_a_filter(pgsched: Pgsched, letters: psycopg.Connection) -> None:
    pgsched("run", "retry", "--state", "dead", "--yes")
    assert pgsched("run", "cancel", "--task", "send", "--reason", "no", "--yes").out == "cancelled 12 of 12 runs\n"
    assert queued(letters) == 1


def test_a_queued_run_that_no_worker_offers_is_shown_as_unroutable(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task, kind) VALUES ('send', 'task'), ('true', 'command')")
    worker = "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease) VALUES "
    db.execute(worker + "('h:1', 'h', 1, '1', 1, '{task}', '{send}', '1 minute')")
    (command, send) = pgsched("run", "list", "--json").json
    assert (command["unroutable"], send["unroutable"]) == (True, False)
    assert "unroutable: no live worker offers it" in pgsched("run", "list").out
    assert "unroutable: no live worker offers kind command on queue default" in pgsched("run", "show", "2").out
    assert pgsched("run", "show", "2", "--json").json["unroutable"] is True
    assert "unroutable" not in pgsched("run", "show", "1").out


def test_the_evidence_of_every_attempt_is_shown(pgsched: Pgsched, letters: psycopg.Connection) -> None:
    letters.execute(
        "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, worker, error, log_tail, started_at)"
        " SELECT 1, gen_random_uuid(), n, 'failed', 'h:' || n, 'no ' || n, E'a\\x1b[2Jb', now() - interval '70.5 s'"
        " FROM generate_series(1, 2) n"
    )
    said = pgsched("run", "show", "1")
    assert said.out.count("failed, after 1m 10s, ") == 2
    assert "on h:2" in said.out
    assert "a\\x1b[2Jb" in said.out
    assert "\x1b" not in said.out
    assert said.err == "\nrevive it: pgsched run retry 1\n"


def test_a_run_that_is_dead_is_not_due_later(pgsched: Pgsched, letters: psycopg.Connection) -> None:
    letters.execute(
        "UPDATE pgsched.runs SET attempt = 3, started_at = now() - interval '10 minutes 1 second',"
        " available_at = now() + interval '1 hour' WHERE id = 1"
    )  # left from the back-off before an attempt that will not be made
    said = pgsched("run", "list", "--state", "dead", "--task", "send").out
    assert "10m 1s ago" in said and "in 59m" not in said


def test_text_that_is_cut_on_a_narrow_terminal_ends_with_an_ellipsis(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pgsched.cli.output.printing import print_rich

    monkeypatch.setenv("COLUMNS", "80")
    run = [
        "4711",
        "a job with a name that is long",
        "succeeded",
        "1/3",
        "10m 13s ago",
        "344ms",
        "reports.build",
        "x" * 60,
    ]
    print_rich(["ID", "JOB", "STATE", "ATTEMPT", "SLOT", "TOOK", "TASK", "WHY"], [run])
    _heading, line = capsys.readouterr().out.splitlines()
    assert len(line) <= 80 and line.endswith("xxxxxxx…") and "succeeded" in line and "4711" in line
    print_rich(["AT", "WHAT", "CHANGE"], [["2026-05-01 02:00:00 UTC", "job " + "n" * 60, "y" * 90]], True, ["AT"])
    assert "2026-05-01 02:00:00 UTC  job nn" in capsys.readouterr().out


def test_a_narrow_terminal_shrinks_only_the_widest_columns() -> None:
    from pgsched.cli.output.printing import shrink_widths

    assert shrink_widths([5, 30, 9], 80) == [5, 30, 9]
    assert shrink_widths([5, 30, 9], 40) == [5, 20, 9]
    assert shrink_widths([5, 30, 40], 40) == [5, 14, 15]
    assert shrink_widths([5, 30, 40], 20) == [5, 13, 13], "what is cut must still be told apart"
