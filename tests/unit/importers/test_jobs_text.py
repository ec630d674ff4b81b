"""jobs.yaml of an import: readers of both versions of YAML read every value back as it is, and no text escapes."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.control_characters import CONTROL
from pgsched.core.jobs_file.texts.yaml_reader import read_yaml
from pgsched.core.jobs_file.texts.yaml_writer import entry_lines
from pgsched.importers.file_values import length_text
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark, merge_imported
from pgsched.importers.jobs_text import comment_lines, summary_lines, write_jobs_file
from tests.support.fuzz.profile import examples

NASTY = ("yes", "on", "22:00", "1e3", "0x1f", "null", "~", "- a", "a: b", "a #b", "#", "*x", "&x", "!x", "%d", "@daily",
         "", " a", "a ", "'", '"', "\\", "a\nb", "a\n", "\n", "a\n\n", "\tb", " x\ny", "a\n\n b\n", "\x00", "\x1b[2J",
         "\u2028", "\ufeff", "\uffff", "é", "\U0001f600", "2026-01-01", "<<", "=", "it's", '"a" \'b\'', "a\r\nb",
         "1_000", "{slot:%Y}", "[x", "a,b", "12", "-1", "1.5", ".inf", "a\tb\nc", "a \nb",
         "a" * 1100, "a b" * 400, "1.5 seconds", "1 e", "0 x", "10ms", "1 hour 2 minutes", "\x01" * 300)  # fmt: skip
texts = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
values = st.recursive(
    st.one_of(
        texts, st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()
    ),
    lambda one: st.one_of(st.lists(one, max_size=4), st.dictionaries(texts, one, max_size=4)),
    max_leaves=8,
)


class Core(yaml.SafeLoader):
    """A reader of YAML 1.2's core schema: fewer words have a meaning."""


Core.yaml_implicit_resolvers = {}
Core.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(null|Null|NULL|~|)$"), [*"nN~", ""])
Core.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
Core.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)
Core.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))


@examples(150, 400)
@given(texts, values)
def test_a_value_is_read_back_as_it_is(key: str, value: Any) -> None:
    text = "\n".join(entry_lines(key, value, 2)) + "\n"
    for loader in (yaml.CSafeLoader, Core):
        assert yaml.load(text, loader) == {key: value}, text
    assert read_yaml("jobs.yaml", text.encode()).data == {key: value}, text


@settings(deadline=None, max_examples=200)
@given(values)
def test_no_value_controls_a_terminal(value: Any) -> None:
    text = "\n".join(entry_lines("a", value, 0)).replace("\n", "").replace("\t", "")
    assert CONTROL.search(text) is None


def test_lengths_of_time_are_words() -> None:
    lengths = [timedelta(seconds=s) for s in (90, 7200, 86_400, 0.1, 1.000001, 0)]
    found = [length_text(one) for one in lengths]
    assert found == ["90 seconds", "2 hours", "1 day", "100ms", "1.000001 seconds", "0 seconds"]


def job(name: str = "dump", *remarks: Remark, source: str = "0 2 * * * ./dump", **columns: Any) -> ImportedJob:
    return ImportedJob(name, {"schedule": "0 2 * * *", "kind": "shell", **columns}, [*remarks], "line 3", source)


def test_a_remark_stands_above_its_line() -> None:
    found = job("dump", Remark(Reason.PERCENT, "stdin is the rest", "args"), Remark(Reason.HOME, "no home"),
                args={"stdin": "x\n"}, overlap="allow")  # fmt: skip
    text = write_jobs_file(Imported([found]), title="From a test.")
    assert text.split("jobs:\n")[1].splitlines() == [
        "  # line 3: 0 2 * * * ./dump",
        "  # NOT EXACT: HOME",
        "  # HOME: no home",
        "  dump:",
        "    schedule: '0 2 * * *'",
        "    kind: shell",
        "    # PERCENT: stdin is the rest",
        '    args: {stdin: "x\\n"}',
        "    overlap: allow",
        "    paused: true",
    ]
    assert Reason.PERCENT.pages[0] in text and Reason.PERCENT.sentence in text


def test_the_head_lists_what_differs_apart_from_what_informs() -> None:
    jobs = [job("a", Remark(Reason.PERCENT, "")), job("b", Remark(Reason.RETRIES, ""), Remark(Reason.HOME, ""))]
    text = write_jobs_file(Imported(jobs, [Remark(Reason.MAILTO, "m")]), title="T")
    head = [line for line in text.split("jobs:\n")[0].splitlines() if not line.startswith("#     ")]
    assert [line.split(":")[0] for line in head[3:] if line != "#"] == [
        "# Differs", "#   MAILTO", "#   HOME", "#   RETRIES", "# For your information", "#   PERCENT", "defaults",
        "  kind", "  paused",
    ]  # fmt: skip
    exact, other = text.split("jobs:\n")[1].split("\n\n")
    assert "NOT EXACT" not in exact
    assert "  # NOT EXACT: RETRIES, HOME\n" in other


def test_columns_that_all_jobs_share_are_defaults() -> None:
    jobs = [job("a", overlap="allow", timezone="UTC"), job("b", overlap="allow", timezone="Europe/Berlin")]
    found = yaml.safe_load(write_jobs_file(Imported(jobs), title="T", mode="shadow"))
    assert found["defaults"] == {"kind": "shell", "overlap": "allow", "mode": "shadow"}
    assert found["jobs"]["b"] == {"schedule": "0 2 * * *", "timezone": "Europe/Berlin"}


def test_a_job_with_another_value_than_most_says_so() -> None:
    jobs = [job(name, overlap="skip" if name == "c" else "allow") for name in "abc"]
    found = yaml.safe_load(write_jobs_file(Imported([*jobs, job("d", overlap="allow")]), title="T"))
    assert found["defaults"]["overlap"] == "allow"
    assert (found["jobs"]["a"], found["jobs"]["c"]["overlap"]) == ({"schedule": "0 2 * * *"}, "skip")


def test_a_job_that_was_suspended_is_paused_in_shadow_mode_too() -> None:
    found = yaml.safe_load(write_jobs_file(Imported([job("a", paused=True), job("b")]), title="T", mode="shadow"))
    assert (found["jobs"]["a"]["paused"], found["jobs"]["b"]["mode"]) == (True, "shadow")
    assert "mode" not in found["jobs"]["a"]


@settings(deadline=None, max_examples=200)
@given(texts, texts, texts)
def test_no_text_of_the_source_leaves_its_comment(source: str, where: str, why: str) -> None:
    remark = Remark(Reason.SYNTAX, why)
    imported = Imported([job("a", remark, source=source)], [remark], [Omitted(where, source, remark)])
    found = yaml.load(write_jobs_file(imported, title=f"From {where}"), yaml.CSafeLoader)
    assert found == {"jobs": {"a": {"schedule": "0 2 * * *", "kind": "shell", "paused": True}}}


def test_a_long_text_is_wrapped() -> None:
    lines = comment_lines("word " * 60, indent=2, hang=2)
    assert len(lines) > 2 and all(len(line) <= 110 and line.startswith("  # ") for line in lines)


def test_the_summary_counts_jobs_by_reason() -> None:
    jobs = [job("a", Remark(Reason.PERCENT, "")), job("b", Remark(Reason.HOME, ""), Remark(Reason.HOME, "twice"))]
    imported = merge_imported([
        Imported(jobs, [Remark(Reason.MAILTO, "m")]),
        Imported([], [Remark(Reason.MAILTO, "m")], [Omitted("line 9", "@reboot x", Remark(Reason.AT_REBOOT, ""))]),
    ])  # fmt: skip
    lines = summary_lines(imported)
    assert lines[0] == "2 jobs: 1 exact, 1 not; 1 became no job"
    assert [line.split(":")[0].split() for line in lines[1:]] == [
        ["1", "MAILTO"], ["1", "PERCENT"], ["1", "AT_REBOOT"], ["1", "HOME"],
    ]  # fmt: skip


def test_nothing_to_import_is_a_file_too() -> None:
    assert yaml.safe_load(write_jobs_file(Imported(), title="From nothing")) == {"jobs": {}}


def test_every_reason_has_a_sentence_and_a_page() -> None:
    assert all(one.sentence.endswith(".") and one.pages for one in Reason)
    assert len({one.value for one in Reason}) == len(list(Reason.__members__)), "an alias: two with one sentence"
