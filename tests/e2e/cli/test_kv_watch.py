"""`pgsched kv watch` prints each change as one line, goes on over cut connections, and ends with Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.said import Said
from tests.support.cli.terminal import terminal
from tests.support.logins import Logins
from tests.support.paths import ROOT
from tests.support.recipes.bound_keys import Db, cut_connections, number, put_many
from tests.support.waiting import wait_until


class Watching:
    """`pgsched kv watch` in a process of its own, whose output goes into two files."""

    def __init__(self, folder: Path, dsn: str, args: tuple[str, ...]) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pgsched", "kv", "watch", *args], cwd=ROOT, stdout=out, stderr=err,
                env=os.environ | {"PGSCHED_DSN": dsn},
            )  # fmt: skip
        wait_until(lambda: "watching " in self.notes or self.process.poll() is not None, 30, "the watch to begin")

    @property
    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def notes(self) -> str:
        return self._err.read_text()

    def until(self, count: int) -> list[str]:
        """Wait until so many lines were printed, and return them."""
        wait_until(lambda: len(self.lines) >= count, 30, f"{count} lines")
        return self.lines

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


Watch = Callable[..., Watching]


@pytest.fixture
def watch(dsn: str, tmp_path: Path) -> Iterator[Watch]:
    """Return a function that starts `pgsched kv watch`."""
    with contextlib.ExitStack() as opened:

        def start(*args: str, login: str = dsn) -> Watching:
            folder = tmp_path / str(len([*tmp_path.iterdir()]))
            folder.mkdir()
            one = Watching(folder, login, args)
            opened.callback(one.process.wait)
            opened.callback(one.process.kill)
            return one

        yield start


def put(db: Db, key: str, value: str = "1") -> int:
    return int(number(db, "SELECT pgsched.kv_put(%s, %s::text::jsonb)", key, value))


def delete(db: Db, key: str) -> int:
    return int(number(db, "SELECT pgsched.kv_delete(%s)", key))


def test_each_change_is_a_line(watch: Watch, db: Db) -> None:
    put(db, "flags/a")
    watching = watch("flags/")
    assert watching.notes == "watching flags/ after version 1; Ctrl-C ends it\n"
    put(db, "flags/a", '{"on": true}')
    put(db, "flags")
    put(db, "flags/\x1b[2J", '"\x9b"')
    delete(db, "flags/a")
    words = [line.split(maxsplit=6) for line in watching.until(3)]
    assert [line[3:] for line in words] == [
        ["put", "flags/a", "2", '{"on": true}'],
        ["put", "flags/\\x1b[2J", "4", '"\\u009b"'],
        ["deleted", "flags/a", "5"],
    ]
    assert words[0][2] == "UTC"


def test_a_whole_key_is_watched_alone_when_asked_for(watch: Watch, db: Db) -> None:
    watching = watch("flags/a", "--exact", "--json")
    put(db, "flags/ab")
    put(db, "flags/a", "[1.10]")
    delete(db, "flags/a")
    changes = list(map(json.loads, watching.until(2)))
    assert [(one["version"], one["kind"], one["key"], one["value"]) for one in changes] == [
        (2, "put", "flags/a", [1.1]), (3, "deleted", "flags/a", None),
    ]  # fmt: skip
    assert '"value": [1.10]' in watching.lines[0] and changes[0]["changed_at"].endswith("+00:00")
    assert json.loads(watching.notes)["note"].startswith("watching flags/a after version 0")


@pytest.mark.long
def test_ctrl_c_says_how_to_go_on_without_missing_anything(watch: Watch, db: Db) -> None:
    first = watch("app")
    put(db, "app/a")
    first.until(1)
    assert first.interrupt() == 130
    assert first.notes.splitlines()[1:] == ["to go on from here: --after 1"]
    put(db, "app/b")
    delete(db, "app/a")
    second = watch("app", "--after", "1")
    put(db, "app/c")
    assert [line.split()[3:6] for line in second.until(3)] == [
        ["put", "app/b", "2"], ["deleted", "app/a", "3"], ["put", "app/c", "4"],
    ]  # fmt: skip


@pytest.mark.long
def test_changes_that_are_not_kept_any_more_are_said_to_be_skipped(watch: Watch, db: Db) -> None:
    put_many(db, "app/", 1200)
    watching = watch("app/", "--after", "3")
    put(db, "app/x")
    lines = watching.until(2)
    assert lines[0].split() == ["-", "skipped", "app/", "1200"]
    assert lines[1].split()[3:] == ["put", "app/x", "1201", "1"]
    assert "note: changes up to version 1200 are not kept any more: read the keys with" in watching.notes


def test_nothing_is_missed_when_the_connection_is_cut(watch: Watch, db: Db) -> None:
    watching = watch("app")
    for n in range(3):
        put(db, "app", str(n))
        watching.until(2 * n + 1)
        wait_until(lambda: cut_connections(db, "watch"), 20, "a connection to cut")
        put(db, "app", str(n))
        watching.until(2 * n + 2)
    assert [line.split()[5] for line in watching.lines] == ["1", "2", "3", "4", "5", "6"]
    assert "note: watching again error=" in watching.notes


def test_json_that_python_cannot_read_does_not_end_it(watch: Watch, db: Db) -> None:
    watching = watch("app")
    put(db, "app", "1e5000")
    put(db, "app", "[" * 3000 + "]" * 3000)
    assert [len(line.split()[6]) for line in watching.until(2)] == [5001, 6000]


@pytest.mark.long
def test_readers_watch_and_others_are_refused(watch: Watch, db: Db, logins: Logins) -> None:
    owner = logins.connect("alice")
    put(owner, "shop/a")
    reading = watch("shop", login=logins.dsn("eye"))
    refused = watch("shop/a", login=logins.dsn("bob"))
    assert refused.process.wait(30) == 7
    assert 'permission denied: key "shop/a" belongs to the role that used it first' in refused.notes
    assert (refused.notes.count("\n"), refused.lines) == (1, [])
    put(owner, "shop/a", "2")
    assert reading.until(1)[0].endswith("put      shop/a  2  2")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("/a",), "prefix: must not begin with a slash"),
        (("a", "--after", "-1"), "after: -1 is out of range"),
        (("a", "--after", str(2**63)), "after: "),
    ],
)
def test_bad_input_is_refused(args: tuple[str, ...], says: str, pgsched: Callable[..., Said]) -> None:
    said = pgsched("kv", "watch", *args)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert says in said.err


def test_a_reader_that_ends_ends_it(dsn: str, db: Db) -> None:
    line = f"'{sys.executable}' -m pgsched kv watch app --after 0 | head -1"
    put_many(db, "app/", 2)
    with subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", line], cwd=ROOT, env=os.environ | {"PGSCHED_DSN": dsn}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None and "app/1" in process.stdout.readline()

            def ended() -> Any:
                put(db, "app/3")
                return process.poll() is not None

            wait_until(ended, 30, "the end of the watch")
            out, err = process.communicate()
            assert (process.returncode, "Traceback" in err, out) == (1, False, "")
        finally:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)


def test_on_a_terminal_each_change_has_one_row(dsn: str, db: Db, tmp_path: Path) -> None:
    with terminal(tmp_path, dsn, width=80) as shown:
        shown.send(f"{sys.executable} -m pgsched kv watch app; echo code $?\r")
        shown.until("watching app after version 0")
        put(db, "app/long", json.dumps("wörd " * 100))
        put(db, "app/short", "2")
        rows = shown.until("app/short").splitlines()
        at = next(n for n, row in enumerate(rows) if "app/long" in row)
        assert rows[at].endswith("…") and len(rows[at]) == 80
        assert rows[at + 1].endswith("put      app/short  2  2")
        shown.send("\x03")
        # interrupted between a row and the next wait, it would show the row again: no change is missed
        shown.until(lambda text: re.search(r"to go on from here: --after [12]\b", text))
        shown.until("code 130")
