"""The console's benchmark requests every page of a running console and reports how long each one took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.measures.console import PAGES

pytest.importorskip("starlette", reason="the console's extra is not installed: pip install 'pgsched[web]'")


@pytest.mark.long  # by default, tests/e2e/web/test_crawl.py requests every page
def test_every_page_is_requested_and_measured(
    server_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["console", "--rows", "3000", "--n", "2", "--dsn", server_dsn, "--out", str(tmp_path)]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    assert "not measured" not in printed
    found = json.loads((tmp_path / "results.json").read_text())["results"]["console"]
    assert [one["page"] for one in found["pages"]] == list(PAGES)
    assert all(0 < one["p50_ms"] <= one["p99_ms"] for one in [*found["pages"], found["status"], found["command"]])
