"""Memory that is filled before a measurement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import memory
from bench.__main__ import main


def test_a_hole_is_read_until_little_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([900, 700, memory.LEFT_MB])
    monkeypatch.setattr(memory, "free_mb", lambda: next(left))
    with memory.hole() as hole:
        hole.fill()
        assert os.fstat(hole._file).st_size == 2 * memory.STEP
        assert os.fstat(hole._file).st_blocks == 0
    with pytest.raises(StopIteration):
        next(left)


def test_where_memory_never_gets_short_a_hole_is_read_twice_as_long_as_memory_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "free_mb", lambda: 10**6)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": memory.STEP // 4096 + 1}.__getitem__)
    with memory.hole() as hole:
        hole.fill()
        assert os.fstat(hole._file).st_size == 3 * memory.STEP
    assert "memory is not filled" in capsys.readouterr().err


def test_memory_that_cannot_be_looked_at_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.MEMINFO", tmp_path / "meminfo")
    assert main(["drain", "--fill-memory"]) == 2
    assert "only Linux has it" in capsys.readouterr().err


def test_the_memory_of_a_server_that_is_elsewhere_is_not_filled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "--fill-memory", "--dsn", "host=elsewhere"]) == 2
    assert "without --dsn" in capsys.readouterr().err
