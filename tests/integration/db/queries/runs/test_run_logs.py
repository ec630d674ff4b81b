"""The output of attempts is in `run_logs` when they have ended.

If it is too long, `run_logs` has its beginning, its end, and how much was left out.
"""

from __future__ import annotations

import sys

import psycopg
import pytest

from tests.support.db.pruning import prune
from tests.support.working import CAP, LEFT_OUT, add, all_ended, output, work


def ran(dsn: str, db: psycopg.Connection, kind: str, task: str, args: object = None, **more: object) -> int:
    run_id = add(db, kind, task, args)
    work(dsn, None, lambda: all_ended(db), **more)
    return run_id


def test_what_a_command_prints_is_kept_by_stream(dsn: str, db: psycopg.Connection) -> None:
    run_id = ran(dsn, db, "shell", "echo one; echo two >&2; echo three")
    assert output(db, run_id, "stdout") == "one\nthree\n"
    assert output(db, run_id, "stderr") == "two\n"


def test_notices_of_sql_are_kept(dsn: str, db: psycopg.Connection) -> None:
    run_id = ran(dsn, db, "sql", "DO $$ BEGIN RAISE NOTICE 'half way'; END $$")
    assert "half way" in output(db, run_id, "log")


def test_output_is_there_before_the_run_has_ended(dsn: str, db: psycopg.Connection, tmp_path: object) -> None:
    gate = f"{tmp_path}/gate"
    run_id = add(db, "shell", f"echo begun; while [ ! -e {gate} ]; do sleep 0.05; done; echo over")

    def seen() -> bool:
        if output(db, run_id) == "begun\n" and not all_ended(db):
            open(gate, "w").close()  # noqa: PTH123
        return all_ended(db)

    work(dsn, None, seen)
    assert output(db, run_id) == "begun\nover\n"


@pytest.mark.long
def test_too_much_output_keeps_its_beginning_its_end_and_a_count(dsn: str, db: psycopg.Connection) -> None:
    lines, mb = 1_000_000, 100
    program = f"import sys\nfor n in range({lines}): sys.stdout.write(f'{{n:09d}}' + 'x' * 90 + '\\n')"
    before = peak_mb()
    run_id = ran(dsn, db, "command", sys.executable, {"argv": ["-c", program]}, timeout=120.0)
    assert peak_mb() - before < mb / 4
    text = output(db, run_id)
    head, n_bytes, n_lines, tail = LEFT_OUT.split(text)
    assert head.startswith("000000000x") and tail.endswith(f"{lines - 1:09d}" + "x" * 90 + "\n")
    kept = len(head) + len(tail)
    assert CAP * 0.8 < kept <= CAP
    assert kept + int(n_bytes.replace(",", "")) == lines * 100
    assert head.count("\n") + tail.count("\n") + int(n_lines.replace(",", "")) == lines


def peak_mb() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_a_worker_sets_how_much_output_is_kept(dsn: str, db: psycopg.Connection) -> None:
    run_id = ran(dsn, db, "shell", "seq 1 100000", log_bytes=4000)
    head, _, _, tail = LEFT_OUT.split(output(db, run_id))
    assert len(head) == 1000 and 0 < len(tail) <= 3000 and tail.endswith("100000\n")


def test_a_worker_may_keep_nothing(dsn: str, db: psycopg.Connection) -> None:
    run_id = ran(dsn, db, "shell", "echo one", log_bytes=0)
    assert output(db, run_id) == ""
    assert db.execute("SELECT state FROM pgsched.runs").fetchone() == ("succeeded",)


def test_bytes_that_are_not_text_become_replacement_characters(dsn: str, db: psycopg.Connection) -> None:
    run_id = ran(dsn, db, "shell", r"printf 'a\377\000b\303'")
    assert output(db, run_id) == "a\ufffd\ufffdb\ufffd"


@pytest.mark.long
def test_a_character_that_arrives_in_two_parts_is_kept_whole(dsn: str, db: psycopg.Connection) -> None:
    run_id = ran(dsn, db, "shell", r"printf 'caf\303'; sleep 1.3; printf '\251\n'")
    assert output(db, run_id) == "café\n"


@pytest.mark.long
def test_a_line_a_second_makes_few_rows(dsn: str, db: psycopg.Connection) -> None:
    line = "x" * 999
    run_id = ran(dsn, db, "shell", f"for n in 1 2 3 4 5; do echo {line}; sleep 1.1; done")
    assert output(db, run_id) == (line + "\n") * 5
    assert db.execute("SELECT count(*) FROM pgsched.run_logs").fetchone() == (2,)


def test_the_logs_are_deleted_with_their_run(dsn: str, db: psycopg.Connection) -> None:
    ran(dsn, db, "shell", "echo one")
    assert prune(db, 0) == 1
    assert db.execute("SELECT count(*) FROM pgsched.run_logs").fetchone() == (0,)


def test_a_reader_goes_on_in_a_row_that_has_grown(dsn: str, db: psycopg.Connection) -> None:
    from pgsched.db.queries.runs import run_output

    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    put = "INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) VALUES (1, %s, %s, 'log', %s)"
    for attempt, seq, text in ((1, 0, "one\n"), (1, 1, "two\n")):
        db.execute(put, [attempt, seq, text])
    place, got = run_output.BEGINNING, ""
    for change in (
        "UPDATE pgsched.run_logs SET chunk = chunk || E'é more\\n' WHERE seq = 1",
        "UPDATE pgsched.run_logs SET chunk = chunk || E'end\\n' WHERE seq = 1",
        "INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) VALUES (1, 2, 0, 'log', E'next\\n')",
        "SELECT 1",
        "UPDATE pgsched.run_logs SET chunk = chunk || 'x' WHERE attempt = 2",
    ):
        for row in (found := run_output.read_output(db, 1, place)):
            got += row["chunk"]
        place = run_output.behind(found) if found else place
        db.execute(change.encode())
    got += "".join(row["chunk"] for row in run_output.read_output(db, 1, place))
    assert got == "one\ntwo\né more\nend\nnext\nx"
