"""The list of a worker's guard: the process groups that it kills when the worker is gone."""

from __future__ import annotations

import os

import pytest

from pgsched.execute.subprocess.process_guard import watch_groups


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("", set()),
        ("+5 +6 -5", {6}),
        ("?5", {5}),
        ("?5 +5", {5}),
        ("?5 +5 -5", set()),
        ("?5 -5", set()),
        ("?5 ?0", set()),
        ("+4 ?5 ?7", {4, 7}),
        ("?5 +4 -4", {5}),
    ],
)
def test_the_guard_kills_the_groups_that_have_begun_and_not_ended(lines: str, left: set[int]) -> None:
    ours, theirs = os.pipe()
    try:
        os.write(theirs, "".join(f"{line}\n" for line in lines.split()).encode())
        os.close(theirs)
        assert watch_groups(ours, os.getppid()) == left
    finally:
        os.close(ours)
