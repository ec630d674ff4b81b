"""Every list of the values of a policy or option equals the one in core/policies.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from pgsched.app import declarations, options
from pgsched.core import policies
from pgsched.core.model import Kind
from pgsched.db.statements import folder
from pgsched.errors import InputError
from pgsched.web.pages.forms import job_form

COLUMNS = {
    "overlap": policies.OVERLAP, "catch_up": policies.CATCH_UP, "backoff": policies.BACKOFF,
    "on_excluded": policies.ON_EXCLUDED, "mode": policies.MODES,
}  # fmt: skip
OPTIONS = {"on_failure": policies.ON_FAILURE, "on_conflict": policies.ON_CONFLICT}


@pytest.mark.parametrize(("column", "values"), COLUMNS.items())
def test_a_declaration_takes_exactly_the_values_of_a_policy(column: str, values: tuple[str, ...]) -> None:
    check = declarations.POLICIES[column]
    assert [check(column, value) for value in values] == list(values)
    with pytest.raises(InputError, match=column):
        check(column, "constant")


@pytest.mark.parametrize(("column", "values"), [*COLUMNS.items(), ("kind", tuple(Kind))])
def test_the_job_form_offers_exactly_the_values_of_a_policy(column: str, values: tuple[str, ...]) -> None:
    field = job_form.FIELDS[column]
    assert field.choices == values
    assert field.default in values or field.of_task


@pytest.mark.parametrize(("option", "values"), OPTIONS.items())
def test_an_enqueue_takes_exactly_the_values_of_an_option(option: str, values: tuple[str, ...]) -> None:
    assert [options.OPTIONS[option](option, value) for value in values] == list(values)
    assert get_args({"on_failure": options.OnFailure, "on_conflict": options.OnConflict}[option]) == values


PHASE = re.compile(r"\bphase (?:=|<>) (\d)( /\* ([a-z ]+) \*/)?")


FILES = [*folder("sql").glob("*.sql"), *folder("migrations").glob("[0-9]*/*.sql")]


@pytest.mark.parametrize("path", sorted(FILES), ids=lambda path: path.stem)
def test_each_phase_number_in_sql_has_its_name_in_a_comment(path: Path) -> None:
    code = "\n".join(line.partition("--")[0] for line in path.read_text(encoding="utf-8").splitlines())
    names = {str(phase.value): phase.name.lower().replace("_", " ") for phase in policies.Phase}
    wrong = [match[0] for match in PHASE.finditer(code) if match[3] != names[match[1]]]
    assert wrong == []
