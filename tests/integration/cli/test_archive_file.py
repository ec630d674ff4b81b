"""The archive file of `pgsched prune`: one command at a time, a full disk, and its permissions."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.leader import retention
from pgsched.errors import InputError
from pgsched.services import pruning
from pgsched.services.pruning import ArchiveFile
from tests.support.db.pruning import count, keep

Call = Callable[..., Any]


def test_a_second_command_does_not_shorten_a_file_in_use(
    pgsched: Call, db: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """Without the lock, the second command removed lines whose runs still existed; then the first one committed."""
    path = tmp_path / "runs.jsonl"
    first = ArchiveFile(str(path), db)
    first.keep([{"run": '{"id": 1}'}])
    db.execute("INSERT INTO pgsched.runs (id, task, state, finished_at) OVERRIDING SYSTEM VALUE"
               " VALUES (1, 't', 'succeeded', clock_timestamp() - interval '1 day')")  # fmt: skip
    keep(db, any="1 hour")
    count(db)
    said = pgsched("prune", "--archive", str(path))
    assert (said.code, "another" in said.err, said.err.count("\n")) == (2, True, 1), said.err
    assert json.loads(path.read_text()) == {"id": 1}
    first.close()
    said = pgsched("prune", "--archive", str(path))
    assert said.code == 0, said.err
    assert not retention.exists(db, 1)
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == [1]


def test_two_archive_files_can_be_open_at_once(db: psycopg.Connection[Any], tmp_path: Path) -> None:
    one, two = ArchiveFile(str(tmp_path / "one"), db), ArchiveFile(str(tmp_path / "two"), db)
    with pytest.raises(InputError, match="another"):
        ArchiveFile(str(tmp_path / "one"), db)
    one.close()
    ArchiveFile(str(tmp_path / "one"), db).close()
    two.close()


class OnFullDisk(io.FileIO):
    def write(self, _: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_gives_one_line_and_deletes_nothing(
    pgsched: Call, db: psycopg.Connection[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("INSERT INTO pgsched.runs (task, state, finished_at)"
               " VALUES ('t', 'succeeded', clock_timestamp() - interval '1 day')")  # fmt: skip
    keep(db, any="1 hour")
    count(db)

    def open_on_full_disk(path: str, mode: str, opener: Any) -> io.BufferedRandom:
        return io.BufferedRandom(OnFullDisk(path, mode.replace("b", ""), opener=opener))

    monkeypatch.setattr(pruning, "open", open_on_full_disk, raising=False)
    said = pgsched("prune", "--archive", str(tmp_path / "runs.jsonl"))
    assert (said.code, said.err.count("\n")) == (2, 1), said.err
    assert "No space left on device" in said.err
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (1,)


def test_a_new_archive_file_is_readable_by_its_owner_only(db: psycopg.Connection[Any], tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    ArchiveFile(str(path), db).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    ArchiveFile(str(path), db).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "who has chosen otherwise has chosen"
