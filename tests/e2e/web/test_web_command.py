"""`pgsched web` refuses unsafe options, prints its address, serves the console and ends with a signal."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from pgsched.cli import run
from pgsched.web import serving
from pgsched.web.security.secrets import parse_hash
from pgsched.web.settings import Settings
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--host", "0.0.0.0"], "can be reached from elsewhere"),
        (["--token-file", "/nonexistent"], "cannot read"),
        (["--password-hash", "secret"], "--hash-password"),
        (["--trusted-proxy-header", "x-user"], "need each other"),
        (["--no-auth", "--trusted-proxy-header", "x-user", "--trusted-proxy", "10.0.0.0/8"], "contradicts"),
        (["--no-auth", "--host", "0.0.0.0"], "can be reached from elsewhere"),
        (["--trusted-proxy-header", "x-user", "--trusted-proxy", "here"], "trusted proxy"),
        (["--root-path", "jobs"], "root path"),
    ],
)
def test_options_that_protect_nothing_are_bad_input(
    flags: list[str], why: str, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["web", "--dsn", dsn, *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and why in error and error.count("\n") == 1


def test_a_password_may_be_piped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("of some length\n"))
    assert run(["web", "--hash-password"]) == 0
    said = capsys.readouterr()
    assert parse_hash(said.out).fits("of some length") and said.err == ""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run(["web", "--hash-password"]) == 2
    assert capsys.readouterr().err.startswith("error: password: standard input has none")


def test_a_port_that_is_taken_is_bad_input(dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["web", "--dsn", dsn, "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_web_prints_its_address_serves_and_ends_with_a_signal(dsn: str, tmp_path: Path) -> None:
    said = tmp_path / "err"
    command = [sys.executable, "-m", "pgsched", "web", "--dsn", dsn, "--port", "0"]
    env = os.environ | {"PGSCHED_HOME": str(tmp_path / "home")}
    with said.open("w") as err, subprocess.Popen(command, cwd=ROOT, stderr=err, env=env) as process:
        try:
            pattern = re.compile(r"pgsched web: (http://127\.0\.0\.1:\d+/)(login\?token=[\w-]{43})\n")
            found = wait_until(lambda: pattern.search(said.read_text()), 60, "the address")
            with urllib.request.urlopen(f"{found[1]}healthz", timeout=30) as answer:
                assert answer.read() == b'{"ok":true}'
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{found[1]}api/v1/jobs", timeout=30)
            keeps = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with keeps.open(f"{found[1]}{found[2]}", timeout=30) as answer:
                assert answer.url == found[1] and b"Overview" in answer.read()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "Traceback" not in said.read_text()


def test_the_token_of_a_read_only_console_opens_no_other_console(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSCHED_HOME", str(tmp_path))
    began: list[Settings] = []
    monkeypatch.setattr(serving, "serve_console", lambda settings, *_: began.append(settings))
    for flags in ([], [], ["--read-only"]):
        assert run(["web", "--dsn", dsn, *flags]) == 0
    write, again, read = (settings.token for settings in began)
    assert write == again != read


@pytest.mark.long
def test_a_stop_ends_open_event_streams(dsn: str, tmp_path: Path) -> None:
    said = tmp_path / "err"
    command = [sys.executable, "-m", "pgsched", "web", "--dsn", dsn, "--port", "0", "--no-auth", "--root-path", "/jobs"]
    env = os.environ | {"PGSCHED_HOME": str(tmp_path / "home")}
    with said.open("w") as err, subprocess.Popen(command, cwd=ROOT, stderr=err, env=env) as process:
        try:
            found = wait_until(lambda: re.search(r"pgsched web: (\S+)\n", said.read_text()), 60, "the address")
            assert found[1].endswith("/jobs/")
            asked = urllib.request.Request(found[1], headers={"Accept": "text/event-stream"})
            with urllib.request.urlopen(asked, timeout=30) as stream:
                assert stream.readline() == b"retry: 1000\n"
                process.send_signal(signal.SIGTERM)
                stream.read()  # to its regular end, which a stream that is cut off does not have
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert said.read_text().count("\n") == 1, said.read_text()


STOPPED_AT_ONCE = """
import os, signal, sys
from pgsched.web import serving
from pgsched.web.settings import Settings
serving.serve_console(Settings("", port=0), sys.argv[1], lambda _: os.kill(os.getpid(), signal.SIGTERM))
print("ended in good order")
"""


def test_a_producer_s_token_alone_lets_no_person_in(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People still get the address with the token that the console makes."""
    monkeypatch.setenv("PGSCHED_HOME", str(tmp_path))
    monkeypatch.setenv("PGSCHED_WEB_PRODUCER_TOKEN", "a-token-of-the-shop")
    began: list[Settings] = []
    monkeypatch.setattr(serving, "serve_console", lambda settings, *_: began.append(settings))
    assert run(["web", "--dsn", dsn]) == 0
    assert began[0].token is not None and began[0].by_token("a-token-of-the-shop") == ("produce", "")
    monkeypatch.setenv("PGSCHED_WEB_PRODUCER_TOKEN", "shop a-token-of-the-shop\nbilling another-token-of-ours")
    assert run(["web", "--dsn", dsn]) == 0
    assert began[1].by_token("another-token-of-ours") == ("produce", "billing")
    assert run(["web", "--dsn", dsn, "--read-only"]) == 2


@pytest.mark.long
def test_a_signal_before_the_first_request_ends_the_console(dsn: str) -> None:
    """The signal comes after the address is printed, and before the server handles signals."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_AT_ONCE, dsn], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended in good order\n"), done.stderr
