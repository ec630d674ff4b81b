"""`--fill-memory` of the benchmarks fills free memory before a measurement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import memory
from bench.__main__ import main


def test_fill_reads_the_hole_until_only_left_mb_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([900, 700, memory.LEFT_MB])
    monkeypatch.setattr(memory, "free_mb", lambda: next(left))
    with memory.hole() as hole:
        hole.fill()
        assert os.fstat(hole._file).st_size == 2 * memory.STEP
        assert os.fstat(hole._file).st_blocks == 0
    with pytest.raises(StopIteration):
        next(left)


def test_fill_stops_after_reading_twice_the_size_of_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "free_mb", lambda: 10**6)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": memory.STEP // 4096 + 1}.__getitem__)
    with memory.hole() as hole:
        hole.fill()
        assert os.fstat(hole._file).st_size == 3 * memory.STEP
    assert "memory is not filled" in capsys.readouterr().err


def test_fill_memory_is_refused_without_proc_meminfo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.MEMINFO", tmp_path / "meminfo")
    assert main(["drain", "--fill-memory"]) == 2
    assert "only Linux has it" in capsys.readouterr().err


def test_fill_memory_is_refused_for_a_server_given_by_dsn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "--fill-memory", "--dsn", "host=elsewhere"]) == 2
    assert "without --dsn" in capsys.readouterr().err
