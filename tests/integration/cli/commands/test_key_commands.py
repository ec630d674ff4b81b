"""`pgsched kv get`, `put`, `list` and `delete`: values, versions, refusals, and what may stand in a value."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from pgsched.cli import completion
from pgsched.db.queries.recipes import store
from pgsched.recipes import keys
from tests.support.cli.said import Said
from tests.support.logins import Logins
from tests.support.recipes.bound_keys import Db, number, put_many

Pgsched = Callable[..., Said]


def stored(db: Db, key: str) -> Any:
    return number(db, "SELECT value::text FROM pgsched.store WHERE key = %s", key)


def test_a_value_is_written_and_printed_as_json(pgsched: Pgsched) -> None:
    assert pgsched("kv", "put", "app/a", '{"x": [1, null, "ü"]}') == Said(0, "wrote app/a, version 1\n", "")
    assert pgsched("kv", "get", "app/a") == Said(0, '{"x": [1, null, "ü"]}\n', "")
    assert pgsched("kv", "put", "app/b", "null", "--json").json == {"key": "app/b", "version": 2}
    assert pgsched("kv", "get", "app/b").out == "null\n"
    record = pgsched("kv", "get", "app/a", "--json").json
    assert record.pop("changed_at").startswith("20")
    assert record == {"key": "app/a", "value": {"x": [1, None, "ü"]}, "version": 1, "revision": 1, "bound": False}


def test_text_is_written_without_quotes_and_printed_so_when_asked_for(pgsched: Pgsched) -> None:
    pgsched("kv", "put", "app/a", 'say "hi"\n', "--text")
    assert pgsched("kv", "get", "app/a").out == '"say \\"hi\\"\\n"\n'
    assert pgsched("kv", "get", "app/a", "--raw").out == 'say "hi"\n\n'
    pgsched("kv", "put", "app/a", "[1]")
    assert pgsched("kv", "get", "app/a", "--raw").out == "[1]\n", "what is no string is JSON"
    assert pgsched("kv", "get", "app/a", "--raw", "--json").code == 2


@pytest.mark.parametrize("text", ["1.10", "123456789012345678901234567890.123456789012345678901"])
def test_a_number_keeps_all_its_digits(text: str, pgsched: Pgsched) -> None:
    pgsched("kv", "put", "n", text)
    assert pgsched("kv", "get", "n").out == f"{text}\n"
    assert f'"value": {text},' in pgsched("kv", "get", "n", "--json").out


def test_a_value_comes_from_standard_input(pgsched: Pgsched, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    for args, given, wanted in (
        ((), ' {"a":\n1}\n', '{"a": 1}'),
        (("--text",), "two\nlines\n", '"two\\nlines"'),
        (("--text",), "\n\n", '"\\n"'),
        (("--text",), "", '""'),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        assert pgsched("kv", "put", "a", "-", *args).code == 0
        assert stored(db, "a") == wanted


def test_input_that_is_no_text_is_refused(pgsched: Pgsched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    said = pgsched("kv", "put", "a", "-", "--text")
    assert said.code == 2
    assert said.err.startswith("error: value: cannot read standard input: ")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["put", "a", "yes"], "value: is not JSON: Expecting value: line 1 column 1 (char 0); with --text it is"),
        (["put", "a", "NaN"], "value: is not JSON: "),
        (["put", "a", "1e400"], "value: is not JSON: "),
        (["put", "a", "[" * 100_000], "value: is "),
        (["put", "a", '"\\u0000"'], "value: holds a NUL character"),
        (["put", "a", '"\\ud800"'], "value: holds half a surrogate pair"),
        (["put", "a", "x" * 65_535, "--text"], "value: has 65,537 bytes as JSON; at most 65,536 are allowed"),
        (["put", "a", "[" + "1," * 30_000 + "1]"], "value: expected JSON of at most 64 KiB"),
        (["put", "a", " " * 5_000_000], "value: is longer than 64 KiB"),
        (["put", "", "1"], "key: must not be empty"),
        (["put", "/a", "1"], "key: must not begin with a slash"),
        (["put", "k" * 257, "1"], "key: 257 characters, at most 256 are allowed"),
        (["put", "a\x1b", "1"], "key: must not contain control characters"),
        (["put", "a", "1", "--version", "-1"], "version: -1 is out of range"),
        (["put", "a", "1", "--version", str(2**63)], f"version: {2**63} is out of range"),
        (["delete", "a", "--version", "0"], "version: 0 is out of range"),
        (["list", "--limit", "0"], "Invalid value"),
    ],
)
def test_bad_input_is_refused_in_one_line(args: list[str], says: str, pgsched: Pgsched) -> None:
    said = pgsched("kv", *args)
    assert (said.code, said.out) == (2, "")
    assert says in said.err and said.err.count("\n") == 1, said.err[-200:]


def test_a_key_that_is_not_there_is_not_found(pgsched: Pgsched) -> None:
    for key in ("flags/new-checkout", "other/new-checkot", "flag"):
        pgsched("kv", "put", key, "true")
    for verb in ("get", "delete"):
        said = pgsched("kv", verb, "flags/new-checkot")
        assert said == Said(8, "", 'error: there is no key "flags/new-checkot"; did you mean flags/new-checkout?\n')
    said = pgsched("kv", "get", "flagg", "--json")
    assert json.loads(said.err)["error"]["code"] == "not_found"
    assert "did you mean flag?" in said.err
    said = pgsched("kv", "get", "nowhere/x")
    assert said.err == 'error: there is no key "nowhere/x"; `pgsched kv list` shows those that there are\n'


def test_a_version_is_compared_before_a_key_is_changed(pgsched: Pgsched, db: Db) -> None:
    def refused(*args: str) -> str:
        said = pgsched("kv", *args)
        assert (said.code, said.out) == (1, "")
        assert said.err.endswith("; nothing was changed\n")
        return said.err.partition("; ")[0].removeprefix("error: ")

    assert refused("put", "a", "1", "--version", "3") == 'there is no key "a", so its version is not 3'
    assert number(db, "SELECT count(*) FROM pgsched.store_roots") == 0, "the name belongs to nobody"
    assert pgsched("kv", "put", "a", "1", "--version", "0").code == 0
    assert refused("put", "a", "2", "--version", "0") == 'there is a key "a" already, its version is 1'
    assert refused("put", "a", "2", "--version", "7") == 'the version of "a" is 1, not 7'
    assert refused("delete", "a", "--version", "7") == 'the version of "a" is 1, not 7'
    error = json.loads(pgsched("kv", "put", "a", "2", "--version", "7", "--json").err)["error"]
    assert (error["code"], error["exit_code"]) == ("other_version", 1)
    assert pgsched("kv", "put", "a", "2", "--version", "1").out == "wrote a, version 2\n"
    assert pgsched("kv", "delete", "a", "--version", "2").out == "deleted a\n"
    assert pgsched("kv", "delete", "a").code == 8


def test_a_change_that_others_are_faster_with_is_tried_again_and_then_refused(db: Db) -> None:
    answers = iter([None, 5])
    assert keys.change_key(db, "a", 0, lambda: next(answers)) == keys.Outcome(5, 0)
    refused = keys.change_key(db, "a", 0, lambda: None)
    assert refused == keys.Outcome(None, 0)
    assert keys.describe_refusal("a", 0, 0) == '"a" was changed at this moment: try again; nothing was changed'


def test_a_deleted_key_is_gone(pgsched: Pgsched) -> None:
    pgsched("kv", "put", "a/b", "1")
    assert pgsched("kv", "delete", "a/b", "--json").json == {"key": "a/b", "deleted": True, "version": 2}
    assert pgsched("kv", "get", "a/b").code == 8


@pytest.fixture
def several(pgsched: Pgsched) -> None:
    for key, value in (("flags/b", '"on"'), ("flags/a", "true"), ("flag", "1"), ("rates/EUR", "1.10")):
        assert pgsched("kv", "put", key, value).code == 0


@pytest.mark.usefixtures("several")
def test_keys_are_listed_with_their_values(pgsched: Pgsched) -> None:
    lines = [line.split() for line in pgsched("kv", "list").out.splitlines()]
    assert lines[0] == ["KEY", "VERSION", "CHANGED", "VALUE"]
    assert [(line[0], line[1], line[-1]) for line in lines[1:]] == [
        ("flag", "1", "1"), ("flags/a", "2", "true"), ("flags/b", "1", '"on"'), ("rates/EUR", "1", "1.10"),
    ]  # fmt: skip
    assert {line[-2] for line in lines[1:]} == {"ago"}
    assert [row["key"] for row in pgsched("kv", "list", "flag", "--json").json] == ["flag", "flags/a", "flags/b"]
    (row,) = pgsched("kv", "list", "flags/b", "--json").json
    assert (row["value"], row["version"], row["revision"], row["bound"]) == ("on", 1, 1, False)
    assert pgsched("kv", "list", "nothing/").out == "no key begins with nothing/\n"
    assert pgsched("kv", "list", "nothing/", "--json").json == []


@pytest.mark.usefixtures("several")
def test_keys_are_listed_without_their_values(pgsched: Pgsched) -> None:
    assert pgsched("kv", "list", "--keys", "flags/").out == "flags/a\nflags/b\n"
    assert pgsched("kv", "list", "--keys", "flags/", "--json").json == ["flags/a", "flags/b"]
    assert pgsched("kv", "list", "--keys", "x") == Said(0, "", "")


@pytest.mark.parametrize("options", [[], ["--keys"], ["--json"], ["--keys", "--json"]], ids=" ".join)
def test_a_list_says_that_there_is_more(
    options: list[str], pgsched: Pgsched, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_KEYS", 2)
    put_many(db, "k/", 7)
    for limit, more in ((6, True), (7, False), (1, True)):
        said = pgsched("kv", "list", *options, "--limit", str(limit))
        count = len(said.json) if "--json" in options else said.out.count("k/")
        assert (count, "there are more than" in said.err) == (limit, more)


def test_text_in_keys_and_values_does_not_reach_a_terminal_unescaped(pgsched: Pgsched, db: Db) -> None:
    value = "\x7f\x9b2J\u202e\U000e0041 é \u2028"
    db.execute("SELECT pgsched.kv_put(%s, to_jsonb(%s::text))", ["a/\x1b[2J", value])
    shown = pgsched("kv", "get", "a/\x1b[2J").out
    assert shown == '"\\u007f\\u009b2J\\u202e\\udb40\\udc41 é \\u2028"\n'
    assert json.loads(shown) == value, "it is the same JSON"
    said = pgsched("kv", "list").out
    assert "a/\\x1b[2J" in said and '"\\u007f\\u009b2J\\u202e\\udb40\\udc41 é \\u2028"' in said
    assert pgsched("kv", "list", "--keys").out == "a/\\x1b[2J\n"
    assert pgsched("kv", "get", "a/\x1b[2J", "--json").out.isascii()
    assert pgsched("kv", "list", "--json").json[0]["value"] == value
    assert pgsched("kv", "get", "a/\x1b[2J", "--raw").out == f"{value}\n", "into a pipe it goes as it is"
    assert pgsched("kv", "delete", "a/\x1b[2J").out == "deleted a/\\x1b[2J\n"


def test_on_a_terminal_a_string_is_escaped_and_a_record_indented(
    pgsched: Pgsched, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("SELECT pgsched.kv_put('a', to_jsonb(e'one\\n\\u009btwo'::text))")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert pgsched("kv", "get", "a", "--raw").out == "one\n\\x9btwo\n"
    said = pgsched("kv", "get", "a", "--json")
    assert said.out.startswith('{\n  "key": "a",\n  "value": "one\\n\\u009btwo",\n') and said.json
    said = pgsched("kv", "list", "--json")
    assert said.out.startswith('[\n  {"key": "a"') and said.json[0]["version"] == 1


def test_a_list_fits_on_a_terminal_of_eighty_columns(pgsched: Pgsched, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    put_many(db, "payments/rates/of-a-rather-long-name-with-many-words-in-it/", 2)
    db.execute("SELECT pgsched.kv_put('a', to_jsonb(repeat('long ', 1000)))")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = re.sub("\x1b\\[[0-9;]*m", "", pgsched("kv", "list").out).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    assert "VERSION  CHANGED" in lines[0] and lines[1].rstrip().endswith("…") and " ago " in lines[2]


def test_json_that_python_cannot_read_is_shown_all_the_same(pgsched: Pgsched, db: Db) -> None:
    db.execute("SELECT pgsched.kv_put('deep', (repeat('[', 3000) || repeat(']', 3000))::jsonb)")
    db.execute("SELECT pgsched.kv_put('large', ('1e5000')::jsonb)")
    assert pgsched("kv", "get", "deep").out == "[" * 3000 + "]" * 3000 + "\n"
    assert pgsched("kv", "get", "large", "--raw").out == "1" + "0" * 5000 + "\n"
    for args in (("get", "deep", "--json"), ("list",), ("list", "--json"), ("delete", "large")):
        assert pgsched("kv", *args).code == 0, args


def test_roles_use_their_own_keys_and_readers_read_them(pgsched: Pgsched, logins: Logins) -> None:
    def asked(who: str, *args: str) -> Said:
        return pgsched("kv", *args, "--dsn", logins.dsn(who))

    assert asked("alice", "put", "shop/a", "1").code == 0
    for args in (("get", "shop/a"), ("put", "shop/b", "1"), ("delete", "shop/a"), ("list", "shop/")):
        said = asked("bob", *args)
        assert (said.code, said.out, said.err.count("\n")) == (7, "", 1), args
        assert "belongs to the role that used it first" in said.err
    assert asked("bob", "list").out == "there are no keys\n"
    assert asked("eye", "get", "shop/a").out == "1\n"
    assert "shop/a" in asked("eye", "list").out
    for args in (("put", "shop/a", "2"), ("put", "eye/a", "2"), ("delete", "shop/a")):
        assert asked("eye", *args).code == 7, args
    assert asked("nobody", "get", "shop/a").code in (5, 7)
    assert asked("alice", "get", "shop/a").out == "1\n"


def test_a_database_that_cannot_be_reached_is_one_line(pgsched: Pgsched) -> None:
    for args in (("get", "a"), ("put", "a", "1"), ("list",), ("delete", "a"), ("watch", "a")):
        said = pgsched("kv", *args, "--dsn", "host=127.0.0.1 port=1 password=secret")
        assert (said.code, said.out, said.err.count("\n")) == (3, "", 1)
        assert "cannot reach the database" in said.err and "secret" not in said.err


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pgsched kv get flags/n", ["flags/new", "flags/next"]),
        ("pgsched kv put fl", ["flags/new", "flags/next"]),
        ("pgsched kv delete flags/ne", ["flags/new", "flags/next"]),
        ("pgsched kv list o", ["other"]),
        ("pgsched kv watch x", []),
    ],
)
def test_a_key_is_completed(
    line: str, found: list[str], pgsched: Pgsched, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("flags/new", "flags/next", "flags/ne$(x)", "other"):
        db.execute("SELECT pgsched.kv_put(%s, '1')", [key])
    monkeypatch.setattr(completion, "PATIENCE_S", 30.0)
    for name, value in (("_PGSCHED_COMPLETE", "complete_bash"), ("COMP_WORDS", line), ("COMP_CWORD", "3")):
        monkeypatch.setenv(name, value)
    said = pgsched()
    assert (said.code, said.out.split(), said.err) == (0, found, "")
