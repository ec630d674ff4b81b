"""The YAML reader: the core schema of YAML 1.2, errors with line and path, and bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from pgsched.core.jobs_file.texts import document, yaml_reader
from pgsched.core.jobs_file.texts.yaml_reader import read_yaml
from pgsched.errors import InputError
from tests.support.fuzz.profile import PURE, fuzz


def data(text: str) -> Any:
    return read_yaml("jobs.yaml", text.encode()).data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("No", "No"), ("22:00", "22:00"), ("2026-12-24", "2026-12-24"),
        ("1_000", "1_000"),
        ("0777", 777), ("0o17", 15), ("0xff", 255), ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("-7", -7), ("+7", 7),
        ("true", True), ("False", False), ("TRUE", True), ("~", None), ("null", None), ("", None),
        ("nullify", "nullify"),
        ("'1'", "1"), ('"true"', "true"), ("=", "="), ("1.2.3", "1.2.3"),
        ("0o8", "0o8"), ("-", [None]), ("[a, 1]", ["a", 1]), ("-.5", -0.5), (".", "."), ("+", "+"),
    ],
)  # fmt: skip
def test_a_plain_text_means_what_the_core_schema_says(text: str, value: Any) -> None:
    found = data(f"k: {text}" if text != "-" else "k:\n  -")["k"]
    assert (found, type(found)) == (value, type(value))


def test_keys_are_texts_as_they_stand() -> None:
    assert data("{1: a, on: b, ~: c, 2026-12-24: d}") == {"1": "a", "on": "b", "~": "c", "2026-12-24": "d"}


def test_an_alias_stands_for_its_value() -> None:
    assert data("x-shared: &shared {a: [1, 2]}\nb: *shared\nc: {d: *shared}") == {
        "x-shared": {"a": [1, 2]}, "b": {"a": [1, 2]}, "c": {"d": {"a": [1, 2]}}}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2", "jobs.yaml:2: a: is given twice"),
        ("jobs:\n  n:\n    task: t\n    task: u", "jobs.yaml:4: jobs.n.task: is given twice"),
        ("a: !!python/object/apply:os.system [ls]", "jobs.yaml:1: a: tags are not supported"),
        ("a: !x 1", "jobs.yaml:1: a: tags are not supported: !x"),
        ("%TAG ! tag:x,2000:\n---\na: 1", "jobs.yaml:1: tags are not supported"),
        ("b: &b {c: 1}\na:\n  <<: *b", "jobs.yaml:3: a: merge keys (<<) are not supported"),
        ("a: &a [*a]", "stands inside its own value"),
        ("a: *b", "jobs.yaml:1: is not YAML: found undefined alias|there is no anchor"),
        ("? [a]\n: 1", "a key must be a text"),
        ("? {a: 1}\n: 1", "a key must be a text"),
        ("a: &k x\n*k : 1", "a key must be a text, not an alias"),
        ("a: 1\n---\nb: 2", "jobs.yaml:2: a jobs file is one document"),
        ("a: .inf", "jobs.yaml:1: a: .inf is not a finite number"),
        ("a: 1e999", "1e999 is not a finite number"),
        ("a: [1, 2", "jobs.yaml:2: is not YAML: "),
        ("a: b\n c: d", "jobs.yaml:2: is not YAML: "),
        ("a: \x07", "jobs.yaml"),
        ("a: 1\nb: \"\\ud800\"", "jobs.yaml"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named_with_line_and_path(text: str, problem: str) -> None:
    with pytest.raises(InputError) as refusal:
        data(text)
    said = str(refusal.value)
    assert "\n" not in said
    assert any(part in said for part in problem.split("|")), said


def test_what_is_not_utf_8_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match=r"^jobs\.yaml:2: is not UTF-8: .* at byte 6$"):
        read_yaml("jobs.yaml", b"a: 1\nb\xff: 2")


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert read_yaml("j", b"\xef\xbb\xbfa: 1").data == {"a": 1}


def test_aliases_count_as_what_they_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(InputError, match=r"more than 2,000,000 values, aliases counted in full"):
        data(laughs)
    monkeypatch.setattr(yaml_reader, "MOST_VALUES", 15)
    assert data("a: &a [1, 2]\nb: [*a, *a]")["b"] == [[1, 2], [1, 2]]
    with pytest.raises(InputError, match="more than 15 values"):
        data("a: &a [1, 2]\nb: [*a, *a, *a]")


def test_depth_and_size_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert data("[" * 249 + "]" * 249)
    for depth in (251, 20_000):
        with pytest.raises(InputError, match=r"nested|is not YAML"):
            data("[" * depth + "]" * depth)
    monkeypatch.setattr(document, "MOST_BYTES", 10)
    with pytest.raises(InputError, match="the most for a jobs file"):
        data("a: 23456789")


def test_lines_are_known_down_to_four_levels() -> None:
    read = read_yaml("j", b"jobs:\n  a:\n    args:\n      x:\n        y: 1\n    after:\n      - b\n      - c\n")
    assert [read.line(path) for path in (("jobs",), ("jobs", "a", "args"), ("jobs", "a", "args", "x", "y"),
            ("jobs", "a", "after", 1), ("jobs", "a", "kind"))] == [1, 3, 4, 8, 2]  # fmt: skip
    assert str(read.error(("jobs", "a", "after", 1), "no")) == "j:8: jobs.a.after[1]: no"
    assert str(read.error(("jobs", "a b", "x"), "no")) == 'j:1: jobs."a b".x: no'


TOKENS = ["a: ", "- ", "&x ", "*x", "[", "]", "{", "}", "\n", "  ", "? ", ": ", "!!t ", "<<: ", "|\n", '"', "'", "# c",
          "---\n", "%YAML 1.2\n", "1", ","]  # fmt: skip
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.text(max_size=8),
                    st.floats(allow_nan=False, allow_infinity=False))  # fmt: skip


@fuzz(PURE, st.text(max_size=60))
def test_any_text_is_read_or_refused_with_one_line(text: str) -> None:
    try:
        data(text)
    except InputError as refusal:
        assert "\n" not in str(refusal) and str(refusal).startswith("jobs.yaml")
    except UnicodeEncodeError:
        pass


@fuzz(PURE, st.lists(st.sampled_from(TOKENS), max_size=30))  # fmt: skip
def test_any_sequence_of_tokens_is_read_or_refused(tokens: list[str]) -> None:
    try:
        data("".join(tokens))
    except InputError as refusal:
        assert "\n" not in str(refusal)


def test_the_text_of_aliases_is_bounded() -> None:
    text = f"x-a: &a {'y' * 2**20}\njobs: [" + ", ".join(["*a"] * 70) + "]"
    with pytest.raises(
        InputError, match=r"^jobs\.yaml:2: the file has more than 64 MiB of text, aliases counted in full"
    ):
        data(text)
    assert len(data(text.replace(", *a" * 10 + "]", "]"))["jobs"]) == 60


def test_the_line_of_a_character_that_yaml_does_not_allow() -> None:
    """The C parser counts bytes."""
    with pytest.raises(InputError, match=r"^jobs\.yaml:2: is not YAML: "):
        data("a: " + "é" * 40 + "\nb: \x07\n\n\nc: d")
