"""Any command line ends with a documented exit code, and reports an error in one clear line."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from hypothesis import strategies as st

from pgsched.cli import make_app, run
from pgsched.errors import BUG
from pgsched.leader.alerting import sinks
from pgsched.services import alerts
from tests.support.fuzz.profile import COMMAND, fuzz
from tests.support.fuzz.setting import furnish
from tests.support.fuzz.values import NASTY, WORDS, fields, plain, schedules
from tests.support.paths import ROOT

README = ROOT / "README.md"
CODES = {int(code) for code in re.findall(r"^\| (\d+) \|", README.read_text(encoding="utf-8"), re.MULTILINE)}
# These commands run until they are stopped, or start a server: only their refusals are tried, without a database.
LASTING = {"worker", "leader", "web", "run watch", "kv watch"}
LEFT_OUT = {"demo", "chaos", "psql"}  # demo and chaos start their own servers, psql replaces the process
WAITING = {
    "wait",
    "wait_timeout",
    "wait_for_room",
    "follow",
    "watch",
    "app",
    "roles",
    "set_search_path",
    "to",
}  # "to" would change the schema, which other tests need
NOWHERE = "postgresql://127.0.0.1:1/nowhere?connect_timeout=1"

numbers = st.one_of(st.integers(-3, 30), st.sampled_from([2**31, 2**63, -(2**63), 10**30])).map(str)
odd = st.sampled_from(
    [
        "nan",
        "inf",
        "-inf",
        "1e400",
        "0x10",
        "1_000",
        "٣",
        "--",
        "-",
        "-h",
        "=",
        "\ud800",
        "1h",
        "90s",
        "10 minutes",
        "-1s",
        "99999999999999d",
        "P1D",
        "2026-02-30",
        "9999-12-31T23:59:59Z",
        "0001-01-01",
        "2026-03-29T02:30",
        "yesterday",
        "2026-01-01",
        "{}",
        "[]",
        '{"x": 1}',
        "{",
        "null",
        '"\\u0000"',
        "every",
        "1,2",
        "a=b",
        "x=1",
        "=",
        "x:=1",
        "@/etc/passwd",
        "default",
        "limited",
        "every:x",
        "all",
        "*",
    ]
)
short = [text for text in NASTY if len(text) < 1000]
words = st.one_of(
    odd,
    odd,
    numbers,
    st.sampled_from(short),
    plain,
    schedules,
    fields,
    *(st.sampled_from(found) for found in WORDS.values()),
)


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command, with its path; groups only if they are commands as well."""
    if hasattr(command, "commands"):
        if command.invoke_without_command and path:
            yield path, command
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path, command


COMMANDS = {
    " ".join(path): command
    for path, command in leaves(typer.main.get_command(make_app()))
    if " ".join(path) not in LEFT_OUT
}


def values(parameter: Any) -> st.SearchStrategy[list[str]]:
    """Return what may be written for a parameter: a value, or only the name of a flag."""
    if getattr(parameter, "is_flag", False):
        return st.sampled_from([*parameter.opts, *parameter.secondary_opts]).map(lambda flag: [flag])
    choices = getattr(parameter.type, "choices", None)
    one = st.one_of(st.sampled_from(list(choices)), words) if choices else words
    if parameter.param_type_name == "argument":
        return st.lists(one, min_size=1, max_size=3 if parameter.nargs == -1 else 1)
    name = max(parameter.opts, key=len)
    return st.one_of(one.map(lambda text: [name, text]), one.map(lambda text: [f"{name}={text}"]))


def flat(found: Iterable[list[str]]) -> list[str]:
    return [word for part in found for word in part]


def lines(command: Any) -> st.SearchStrategy[list[str]]:
    """Return command lines with the arguments, some of the options, and sometimes an extra word."""
    arguments = [values(p) for p in command.params if p.param_type_name == "argument"]
    options = [
        values(p) for p in command.params if p.param_type_name == "option" and p.name not in {*WAITING, "dsn", "help"}
    ]
    some = st.lists(st.one_of(*options), max_size=4) if options else st.just([])
    extra = st.one_of(st.just([]), st.just([]), st.just([]), words.map(lambda text: [text]))
    parts = st.tuples(some.map(flat), *arguments, extra)
    return parts.map(flat)


def said(line: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(line)
    return code, out.getvalue(), err.getvalue()


def check(line: list[str]) -> int:
    code, out, err = said(line)
    about = f"{line!r} ended with {code}: {err[-600:]}"
    assert code in CODES, about
    assert code != BUG, about
    assert "Traceback" not in out + err, about
    assert "\x1b" not in err, about
    if code not in (0, 1):  # status, doctor and similar commands also end with 1 when they find a problem
        last = err.strip().splitlines()[-1:] or [""]
        assert last[0].lower().startswith(("error: ", "fail ", '{"error": ')) or "fail" in out, about
    return code


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sinks, "COMMAND_S", 2.0)  # some of the words name programs that run for long
    monkeypatch.setattr(alerts, "PATIENCE_S", 1.0)  # no leader runs here, so no alert is delivered
    monkeypatch.chdir(tmp_path)  # `prune --archive` writes the file that it is given
    for name in [*os.environ]:
        if name.startswith("PGSCHED_") and not name.startswith("PGSCHED_TEST_"):
            monkeypatch.delenv(name)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", sorted(set(COMMANDS) - LASTING))
def test_a_command_ends_with_a_documented_code(
    name: str, dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(db)
    monkeypatch.setenv("PGSCHED_DSN", dsn)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    if name == "lock run":  # no word is the name of a program, which would be run
        monkeypatch.setenv("PATH", "/nowhere")
    seen: set[int] = set()

    @fuzz(COMMAND, line=lines(COMMANDS[name]))
    def ask(line: list[str]) -> None:
        seen.add(check([*name.split(), *line]))

    ask()
    assert seen


@pytest.mark.parametrize("name", sorted(LASTING & set(COMMANDS)))
def test_a_long_running_command_refuses_bad_input_with_a_documented_code(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSCHED_DSN", NOWHERE)

    @fuzz(COMMAND, line=lines(COMMANDS[name]))
    def ask(line: list[str]) -> None:
        check([*name.split(), *line])

    ask()


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 30
    assert LASTING & set(COMMANDS) >= {"worker", "leader", "web"}
    groups = {name.partition(" ")[0] for name in COMMANDS if " " in name}
    assert groups >= {"job", "run", "queue", "limit"}
