"""Whatever a database has is written as a file that reads back as the same: YAML and TOML, every column."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pgsched.core.jobs_file.difference import compare
from pgsched.core.jobs_file.model.dumping import dump
from pgsched.core.jobs_file.model.loading import load
from pgsched.core.jobs_file.texts.document import Document
from pgsched.core.jobs_file.texts.reading import read_document
from pgsched.core.jobs_file.texts.writing import write_toml, write_yaml
from pgsched.errors import InputError
from tests.support.files.jobs_files import RandomValues, every_column_is_random, file_of, state_of
from tests.support.fuzz.profile import NIGHTLY

SEEDS = 300 if NIGHTLY else 25


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(inner) for key, inner in value.items() if inner is not None}
    return [without_null(inner) for inner in value if inner is not None] if isinstance(value, list) else value


def test_the_generator_uses_every_column() -> None:
    every_column_is_random([RandomValues(seed).file(12) for seed in range(10)])


@pytest.mark.parametrize("file_format", ["yaml", "toml"])
def test_what_is_exported_reads_back_without_a_difference(file_format: str) -> None:
    for seed in range(SEEDS):
        data = RandomValues(seed).file(4)
        data = without_null(data) if file_format == "toml" else data
        file = load(Document("random", data, {}))
        state = state_of(file, "ops")
        shown, remarks = dump(state.stored.values(), "ops")
        assert remarks == []
        text = write_toml(shown) if file_format == "toml" else write_yaml(shown)
        again = load(read_document(f"x.{file_format}", text.encode()))
        assert again.owner == "ops"
        difference = compare(again, state, "ops", prune=True)
        assert (seed, difference.changes, difference.left, difference.unowned) == (seed, (), (), ())
        # Nothing is only taken for a default.
        assert {key: dict(entry.values) for key, entry in again.entries.items()} == {
            key: dict(entry.values) for key, entry in file.entries.items()
        }


def test_a_null_cannot_be_written_as_toml() -> None:
    state = state_of(file_of("jobs: {n: {task: t, args: {a: [1, null]}}}"), None)
    with pytest.raises(InputError, match=r"^format: jobs\.n\.args\.a\.1 holds null"):
        write_toml(dump(state.stored.values(), None)[0])


def test_an_export_of_nothing_is_a_file() -> None:
    assert write_yaml(dump([], None)[0]) == "jobs: {}\n"


def test_an_export_is_for_people() -> None:
    text = """
    jobs: {nightly: {task: t, schedule: 0 2 * * *, timeout: 90, tags: [a, b], keep: 7d,
               excluded_dates: ["2026-12-24..2026-12-26: Christmas"], description: "one\\ntwo\\n"}}"""
    state = state_of(file_of(text), None)
    assert (
        write_yaml(dump(state.stored.values(), None)[0])
        == """\
jobs:
  nightly:
    description: |
      one
      two
    task: t
    tags: [a, b]
    schedule: '0 2 * * *'
    excluded_dates: ['2026-12-24..2026-12-26: Christmas']
    timeout: 90 seconds
    keep: {any: 7 days}
"""
    )


def test_json_is_yaml() -> None:
    data = RandomValues(7).file(3)
    assert file_of(json.dumps(data, ensure_ascii=False)).entries.keys() == load(Document("x", data, {})).entries.keys()


def test_what_a_file_cannot_name_is_left_out_with_a_remark() -> None:
    state = state_of(
        file_of("queues: {mail: {}}\nlimits: {l: {}}\npauses: [{what: queue, name: mail}, {what: all}]"), None
    )
    names = iter([" mail", "job:7", "queue a\nb", "all"])
    found = [replace(one, name=next(names)) for one in state.stored.values()]
    shown, remarks = dump(found, None)
    assert shown == {"pauses": [{"what": "all"}]}
    assert [remark.partition(": ")[2] for remark in remarks] == [
        "name: must not begin or end with a space",
        "name: job is kept for the limits that jobs have (concurrency_limit)",
        "name: must not contain control characters"]  # fmt: skip


def test_a_mode_or_pause_that_the_file_names_is_exported() -> None:
    """Else the file that is written would leave it to operators."""
    state = state_of(file_of("jobs: {n: {task: t, schedule: '@daily'}, m: {task: t, schedule: '@daily'}}"), "ops")
    n, m = state.stored.values()
    shown, _ = dump([replace(n, decides=("mode", "paused")), m], None)
    given = {"task": "t", "schedule": "@daily"}
    assert shown["jobs"] == {"n": {**given, "mode": "run", "paused": False}, "m": given}
