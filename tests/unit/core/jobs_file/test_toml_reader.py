"""The TOML reader: values, and the lines that tomllib does not tell."""

from __future__ import annotations

import pytest

from pgsched.core.jobs_file.texts.toml_reader import read_toml
from pgsched.errors import InputError

TEXT = b'''# a file
owner = "ops"
[defaults]
timezone = "UTC"
[jobs.nightly]
task = "t"  # [jobs.fake]
args = {a = 1}
description = """
[jobs.other]
schedule = 1
"""
schedule = "0 2 * * *"
[jobs."a b"]
task = "u"
[[pauses]]
what = "all"
[[pauses]]
what = "queue"
name = "q"
'''


def test_values_are_those_of_tomllib_and_lines_are_found() -> None:
    read = read_toml("jobs.toml", TEXT)
    assert read.data["jobs"]["nightly"]["args"] == {"a": 1}
    paths = [("owner",), ("defaults", "timezone"), ("jobs", "nightly"), ("jobs", "nightly", "schedule"),
             ("jobs", "a b", "task"), ("pauses", 1, "name"), ("pauses", 0), ("jobs", "nightly", "missing")]  # fmt: skip
    assert [read.line(path) for path in paths] == [2, 4, 5, 12, 14, 19, 15, 5]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a = 1\na = 2", "jobs.toml:2: is not TOML: Cannot overwrite a value"),
        (b"a = ", "jobs.toml:1: is not TOML: "),
        (b"\xff", "jobs.toml:1: is not UTF-8"),
        (b"a = " + b"[" * 2000 + b"]" * 2000, "jobs.toml"),
        (b"a = " + b"[" * 260 + b"]" * 260, "jobs.toml"),
        # tomllib keeps each beginning of a dotted key: this one would take 10 GB
        (b"x = 1\n" + b".".join([b"a"] * 50_000) + b" = 1", "jobs.toml:2: has a key of more than 250 parts"),
        (b"[" + b" . ".join([b'"a.b"'] * 251) + b"]", "jobs.toml:1: has a key of more than 250 parts"),
        (b"[" + b".".join([b"a"] * 250) + b"]\n" + b"x.y=1\n" * 100_000, "jobs.toml:79367: has too many long dotted"),
        (b"a = 1" + b"1" * 5000, "jobs.toml: is not TOML: Exceeds the limit (4300 digits)"),
    ],
)
def test_what_is_refused_is_one_line(text: bytes, problem: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_toml("jobs.toml", text)
    assert str(refusal.value).startswith(problem)
    assert "\n" not in str(refusal.value)


def test_texts_with_dots_are_no_keys() -> None:
    dots = ".".join(["a"] * 300)
    text = f"""a = "{dots}"\nb = '{dots}'\nc = [{", ".join(["1.5"] * 300)}]\nd."x.y".z = "\\"{dots}"\n"""
    assert read_toml("jobs.toml", text.encode()).data["d"] == {"x.y": {"z": f'"{dots}'}}
