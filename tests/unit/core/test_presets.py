"""Presets set the columns that docs/concepts/policies.md says, and what is written beside them wins."""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import pytest

from pgsched import App, InputError
from pgsched.app.declarations import POLICIES
from pgsched.core.policies import PRESETS, apply_preset, describe_preset, preset_value_text
from pgsched.web.api.operation_table import OPERATIONS
from tests.support.paths import ROOT

ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)


def declared(**options: Any) -> dict[str, Any]:
    """Return the policies of a job that is declared with these options."""
    app = App("test")

    @app.job(schedule="@daily", **options)
    def work() -> None: ...

    return app.declared_jobs[0].policies


def test_the_page_has_the_values_of_each_preset() -> None:
    page = (ROOT / "docs" / "concepts" / "policies.md").read_text(encoding="utf-8")
    section = page.partition("\n## Presets\n")[2].partition("\n## ")[0]
    shown = {row[1]: [cell.strip(" `") for cell in row[2].split("|")] for row in ROW.finditer(section)}
    columns = dict.fromkeys(column for preset in PRESETS.values() for column in preset)
    wanted = {
        column: ["" if preset[column] is None else preset_value_text(preset[column]) for preset in PRESETS.values()]
        for column in columns
    }
    assert shown == wanted


def test_every_preset_decides_the_same_columns() -> None:
    assert len({tuple(preset) for preset in PRESETS.values()}) == 1


@pytest.mark.parametrize("like", PRESETS)
def test_a_declared_job_takes_the_values_of_a_preset(like: str) -> None:
    columns = {column: value for column, value in PRESETS[like].items() if value is not None}
    assert declared(like=like) == columns
    assert columns.keys() <= POLICIES.keys()


def test_a_policy_that_is_written_beside_a_preset_wins() -> None:
    found = declared(like="kubernetes", overlap="replace", start_deadline=200, backoff_jitter=None)
    assert (found["overlap"], found["start_deadline"].total_seconds()) == ("replace", 200)
    assert "backoff_jitter" not in found
    assert found["max_attempts"] == 7
    assert apply_preset("cron", {"max_attempts": None})["max_attempts"] is None


def test_without_a_preset_nothing_is_added() -> None:
    assert declared() == {}
    assert apply_preset(None, {"overlap": "skip"}) == {"overlap": "skip"}


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"like: \"kubernets\" is not one of cron, .*; did you mean kubernetes\?"):
        apply_preset("kubernets", {})


def test_python_and_http_offer_exactly_the_presets() -> None:
    assert get_args(get_args(get_type_hints(App.job)["like"])[0]) == tuple(PRESETS)
    bodies = [operation.body for operation in OPERATIONS if operation.body and "like" in operation.body]
    assert [body["like"]["enum"] for body in bodies] == [list(PRESETS)] * 2


def test_a_description_leaves_out_what_was_given_and_what_is_a_default() -> None:
    assert describe_preset("cron", {"overlap"}) == "misfire_after 1 minute, catch_up skip, max_attempts 1"
    assert "backoff_max 6 minutes, backoff_jitter 0" in describe_preset("kubernetes", ())
