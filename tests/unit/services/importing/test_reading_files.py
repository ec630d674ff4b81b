"""Sources that are files: databases of SQLite that anybody may have made, and what export_jobs writes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pgsched.db.sources import sqlite as reading
from pgsched.errors import InputError
from pgsched.services.importing.apscheduler import read_apscheduler
from pgsched.services.importing.celery import read_beat_tables
from pgsched.services.importing.sources import find_file
from tests.support.importing.django_tables import INTERVAL_ROW, TASK_ROW, write_beat_tables
from tests.support.importing.slots import NOW
from tests.support.importing.stores import TABLE, dump, job_state, write_store

FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 0, x'00' FROM n"


def test_a_job_store_of_sqlite_is_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs with ?#%.sqlite"
    write_store(path, [("nightly", dump(job_state())), ("bad", b"junk")])
    before = path.read_bytes()
    found = read_apscheduler(str(path), "apscheduler_jobs", NOW)
    assert [job.name for job in found.jobs] == ["nightly"]
    assert [left.where for left in found.omitted] == ["job bad"]
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("jobs.sqlite", "jobs.sqlite"),
        ("sqlite:///jobs.sqlite", "jobs.sqlite"),
        ("sqlite:////var/lib/jobs.sqlite?timeout=5", "/var/lib/jobs.sqlite"),
        ("sqlite+pysqlite:///a%20b.db", "a b.db"),
        ("postgresql:///shop", None),
        ("host=db dbname=shop", None),
    ],
)
def test_a_source_is_a_file_or_a_dsn(source: str, expected: str | None) -> None:
    found = find_file(source)
    assert (None if found is None else str(found)) == expected


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"plain text", b"\xff\xfe", b'{"version": 1}'])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_apscheduler(str(path), "apscheduler_jobs", NOW)


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    path.write_bytes(reading.MAGIC + b"\xff" * 5000)
    with pytest.raises(InputError, match="SQLite"):
        read_apscheduler(str(path), "apscheduler_jobs", NOW)


def test_a_table_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    write_store(path, [])
    with pytest.raises(InputError, match='no table x"; DROP'):
        read_apscheduler(str(path), 'x"; DROP TABLE apscheduler_jobs; --', NOW)
    assert read_apscheduler(str(path), "apscheduler_jobs", NOW).jobs == []


def test_a_view_in_place_of_the_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    with sqlite3.connect(path) as conn:
        conn.execute(f"CREATE VIEW apscheduler_jobs AS {FOREVER}")
    conn.close()
    with pytest.raises(InputError, match="no table"):
        read_apscheduler(str(path), "apscheduler_jobs", NOW)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE apscheduler_jobs (id TEXT, job_state AS (zeroblob(1000000)))",
        "CREATE TABLE apscheduler_jobs (id TEXT, job_state AS (zeroblob(1000000)) STORED)",
        "CREATE VIRTUAL TABLE apscheduler_jobs USING fts5(id, job_state)",
    ],
)
def test_a_table_that_computes_what_it_returns_is_refused(tmp_path: Path, made: str) -> None:
    """A generated column computes whatever its maker likes, and one function of SQLite cannot be interrupted."""
    path = tmp_path / "jobs.sqlite"
    with sqlite3.connect(path) as conn:
        conn.execute(made)
    conn.close()
    with pytest.raises(InputError, match="computes its rows"):
        read_apscheduler(str(path), "apscheduler_jobs", NOW)


def test_a_read_that_takes_very_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs.sqlite"
    write_store(path, ((str(n), b"N.") for n in range(5000)))
    monkeypatch.setattr(reading, "LIMIT_S", 0.0)
    with pytest.raises(InputError, match="interrupted"):
        read_apscheduler(str(path), "apscheduler_jobs", NOW)


def test_more_rows_than_anybody_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    write_store(path, ((str(n), b"N.") for n in range(20_001)))
    with pytest.raises(InputError, match="20,000"):
        read_apscheduler(str(path), "apscheduler_jobs", NOW)


def test_columns_of_other_types_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    with sqlite3.connect(path) as conn:
        conn.execute(TABLE)
        conn.execute("INSERT INTO apscheduler_jobs VALUES ('a', 0, 'text')")
    conn.close()
    with pytest.raises(InputError, match="job_state"):
        read_apscheduler(str(path), "apscheduler_jobs", NOW)


def test_the_tables_of_django_celery_beat_are_read_from_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite3"
    write_beat_tables(path, tasks=[TASK_ROW], intervals=[INTERVAL_ROW])
    (job,) = read_beat_tables(str(path), NOW).jobs
    assert (job.name, job.columns["schedule"], job.columns["task"]) == ("poll", "@every 30s", "shop.poll")
