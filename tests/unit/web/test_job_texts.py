"""Values of a job's columns as the texts of its form, and back."""

from __future__ import annotations

from typing import Any

import pytest

from pgsched.web.pages.forms.job_form import text_of_value, value_of


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("alert_to", ["mail", "ops"], "mail, ops"),
        ("alert_to", [], "{}"),  # no named sink; empty: all of them
        ("alert_to", None, ""),
        ("tags", ["a"], "a"),
    ],
)
def test_a_list_is_the_same_after_a_look_at_the_form(name: str, value: Any, text: str) -> None:
    assert text_of_value(name, value) == text
    assert value_of(name, text) == value
