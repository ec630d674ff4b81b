"""`pgsched import`: the file on stdout, the summary on stderr, exit codes, and JSON."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from pgsched.cli import run
from tests.support.paths import ROOT

SAMPLES = ROOT / "tests" / "unit" / "importers" / "samples"


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_crontab_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    feed(monkeypatch, b"15 2 * * * /usr/local/bin/dump\n@reboot x\n")
    assert run(["import", "crontab", "-", "--timezone", "Europe/Berlin", "--start", "shadow", "--queue", "web1"]) == 0
    out, err = capsys.readouterr()
    found = yaml.safe_load(out)["jobs"]["dump"]
    assert (found["timezone"], found["mode"], found["queue"]) == ("Europe/Berlin", "shadow", "web1")
    assert out.startswith(
        "# Read from standard input by pgsched import crontab, times in Europe/Berlin (--timezone).\n"
    )
    assert "# line 2: @reboot x\n#   AT_REBOOT: " in out
    assert err.splitlines()[0] == "1 job: 1 exact, 0 not; 1 became no job"
    assert err.splitlines()[1].split(":")[0].split() == ["1", "AT_REBOOT"]


@pytest.mark.parametrize(("source", "folder", "jobs"), [
    ("crontab", "cron.d", 30), ("systemd", "units", 23), ("kubernetes", "charts", 22),
])  # fmt: skip
def test_a_directory_of_each_source(source: str, folder: str, jobs: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", source, str(SAMPLES / folder), "--timezone", "UTC"]) == 0
    out, err = capsys.readouterr()
    found = yaml.safe_load(out)
    assert len(found["jobs"]) == jobs and err.startswith(f"{jobs} jobs: ")
    assert found["defaults"]["paused"] is True
    assert max(map(len, [line for line in out.splitlines() if line.lstrip().startswith("#")])) <= 110


def test_json_has_the_remarks_of_each_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    feed(monkeypatch, b"0 6 1 * * mail x%hello\n@reboot x\n")
    assert run(["import", "crontab", "-", "--timezone", "UTC", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == "" and found["jobs"][0]["columns"]["args"]["stdin"] == "hello\n"
    assert found["jobs"][0]["comments"] == [
        {"reason": "percent", "text": "its input is stdin", "column": "args", "informs": True}
    ]
    assert found["omitted"][0]["comments"][0]["reason"] == "at_reboot"


@pytest.mark.parametrize(("args", "words"), [
    (["crontab", "/no/such/file"], "/no/such/file: there is no such file"),
    (["crontab", "no-such-user-here"], "no user of this name"),
    (["crontab", "-", "--timezone", "Mars/Phobos"], '"Mars/Phobos" is not a known IANA zone'),
    (["crontab", "-", "--start", "shadwo"], 'start: "shadwo" is not one of paused, shadow; did you mean shadow?'),
    (["systemd", "/no/such.service"], "is neither a directory nor a timer"),
    (["kubernetes", "/dev/null"], "/dev/null: is no regular file"),
])  # fmt: skip
def test_bad_input_is_one_line(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", *args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("error: ")
    assert words in err


def test_no_text_of_a_source_controls_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(monkeypatch, "0 5 * * * echo \x1b[2J\u202e\n0 5 * * x \x1b[2J\n".encode())
    assert run(["import", "crontab", "-"]) == 0
    out, err = capsys.readouterr()
    assert not {"\x1b", "\u202e"} & {*out, *err}
    assert yaml.safe_load(out)["jobs"]["line-1"]["task"] == "echo \x1b[2J\u202e"
