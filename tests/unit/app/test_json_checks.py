"""The fast check of JSON annotations accepts exactly the values in which `describe_mismatch` finds nothing wrong."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from hypothesis import strategies as st

from pgsched.app.codecs.annotations import describe_mismatch, find_check, is_json
from tests.support.fuzz.profile import PURE, fuzz


class Colour(enum.StrEnum):
    RED = "red"


HINTS = [
    Any, int, float, str, bool, None, list, dict, list[int], list[float], list[Any], Sequence[str], list[list[int]],
    dict[str, int], dict[str, Any], Mapping[str, list[bool]], dict[str, dict[str, float]], int | None, int | str,
    list[int | None], list[Literal["a", 1]], Literal["a", True], dict[str, list[str] | None], Annotated[list[int], "n"],
]  # fmt: skip
SCALARS = st.sampled_from([None, True, False, 0, 1, -7, 1.0, 2.5, "a", "red", Colour.RED, b"a"])
KEYS = st.sampled_from(["a", "b", Colour.RED, 1, None])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple), st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


@fuzz(PURE, st.sampled_from(HINTS), VALUES)
def test_the_fast_check_agrees_with_the_slow_one(hint: Any, value: Any) -> None:
    assert is_json(hint)
    assert find_check(hint)(value) == (describe_mismatch(value, hint, "x") is None)


def test_none_is_no_key_of_an_object() -> None:
    """JSON would turn it into the text `null`."""
    assert describe_mismatch({"a": 1, None: 2}, dict, "x") == "x: expected text as keys, got NoneType None"
    assert not find_check(dict)({"a": 1, None: 2})
