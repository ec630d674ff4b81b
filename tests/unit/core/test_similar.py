"""Suggestions of similar names for a name that is not known."""

from __future__ import annotations

import pytest

from pgsched.core.schedule.zones import zone
from pgsched.core.text import did_you_mean, similar_names
from pgsched.errors import ScheduleError


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("touch", ["app.touch", "app.bank"], ["app.touch"]),
        ("mial", ["mail", "default"], ["mail"]),
        ("APP.TOUCH", ["app.touch"], ["app.touch"]),
        ("va", ["vacuum", "backup"], []),
        ("nothing.like.it", ["app.touch"], []),
        ("mail", ["mail"], []),
    ],
)
def test_similar_names_are_found_and_equal_or_short_ones_are_not(word: str, known: list[str], found: list[str]) -> None:
    assert similar_names(word, known) == found


def test_did_you_mean_names_a_similar_word_or_is_empty() -> None:
    assert did_you_mean("ovrlap", ["overlap", "queue"]) == "; did you mean overlap?"
    assert did_you_mean("x" * 10_000, ["x" * 9_999]) == "", "a stranger's long text costs nothing"


@pytest.mark.parametrize(("name", "meant"), [("europe/berlin", "Europe/Berlin"), ("Europe/Berlim", "Europe/Berlin")])
def test_an_unknown_time_zone_is_refused_with_a_suggestion(name: str, meant: str) -> None:
    with pytest.raises(ScheduleError, match=f"did you mean .*{meant}"):
        zone(name)
