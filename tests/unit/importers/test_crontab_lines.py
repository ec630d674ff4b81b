"""Lines of a crontab: settings, commands with their input, flags, users, and what cron refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.importers.crontab.lines import BadLine, Entry, Setting, read_crontab, split_input
from pgsched.importers.imported import Reason


def one(line: str, *, user_column: bool = False) -> Setting | Entry | BadLine:
    found = list(read_crontab(line, user_column=user_column))
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(("line", "name", "value"), [
    ("PATH=/usr/bin:/bin", "PATH", "/usr/bin:/bin"),
    ("  NAME  =  a b  ", "NAME", "a b"),
    ("A='  kept  '", "A", "  kept  "),
    ('"A"="x=y"', "A", "x=y"),
    ('MAILTO=""', "MAILTO", ""),
    ("A='half", "A", "'half"),
    ("A=$HOME/bin", "A", "$HOME/bin"),
    ("EMPTY=", "EMPTY", ""),
])  # fmt: skip
def test_a_setting(line: str, name: str, value: str) -> None:
    assert one(line) == Setting(1, name, value)


@pytest.mark.parametrize(("line", "times", "command"), [
    ("* * * * * a=1 cmd  two  spaces", "* * * * *", "a=1 cmd  two  spaces"),
    ("\t0 5\t* * 1\t/bin/x\t# not a comment", "0 5 * * 1", "/bin/x\t# not a comment"),
    ("@daily cmd", "@daily", "cmd"),
    ("-*/5 * * * * cmd", "*/5 * * * *", "cmd"),
    ("* * * * * cmd\r", "* * * * *", "cmd"),
])  # fmt: skip
def test_an_entry(line: str, times: str, command: str) -> None:
    found = one(line)
    assert isinstance(found, Entry)
    assert (" ".join(found.times), found.command, found.user) == (times, command, None)


def test_the_line_of_a_system_crontab_has_a_user() -> None:
    found = one("25 6 * * * www-data cmd", user_column=True)
    assert isinstance(found, Entry) and (found.user, found.command) == ("www-data", "cmd")


@pytest.mark.parametrize(("line", "flags"), [
    ("* * * * * -n cmd", "n"), ("* * * * * -nq -s cmd -n", "nqs"), ("-* * * * * cmd", "-"), ("* * * * * - cmd", ""),
])  # fmt: skip
def test_flags_before_the_command(line: str, flags: str) -> None:
    found = one(line)
    assert isinstance(found, Entry) and found.flags == set(flags)
    assert found.command.startswith("cmd") or not flags


def test_comments_and_empty_lines_are_nothing() -> None:
    assert list(read_crontab("# a\n\n   \n\t# 0 0 * * * x\n", user_column=False)) == []


@pytest.mark.parametrize("line", [
    "* * * * *", "0 0 * *", "word", "@daily", "* * * * * * cmd", "= 5", "* * * * * %input", "\x00",
])  # fmt: skip
def test_what_cron_refuses(line: str) -> None:
    found = one(line)
    assert isinstance(found, BadLine) and found.remark.reason is Reason.SYNTAX


@pytest.mark.parametrize(("command", "program", "stdin"), [
    ("date +\\%d", "date +%d", ""),
    ("mail joe%Joe,%%Where?%", "mail joe", "Joe,\n\nWhere?\n"),
    ("cat%a\\%b%c", "cat", "a%b\nc\n"),
    ("cat%", "cat", ""),
    ("a \\\\%x", "a \\\\", "x\n"),
    ("a \\n b", "a \\n b", ""),
    ("cat%a\\nb", "cat", "a\\nb\n"),
    ("a\\", "a\\", ""),
    ("cat%b\\", "cat", "b\\\n"),
])  # fmt: skip
def test_percent_ends_the_command_and_begins_its_input(command: str, program: str, stdin: str) -> None:
    assert split_input(command) == (program, stdin)


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from("0123456789*/-,~@ \t\n\"'=%\\#abcMAILTO\x00é"), max_size=200), st.booleans())
def test_any_text_is_read(text: str, user_column: bool) -> None:
    for line in read_crontab(text, user_column=user_column):
        assert line.number <= text.count("\n") + 1
