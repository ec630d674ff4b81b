"""`pgsched check` knows every variable of the environment that a worker reads."""

from __future__ import annotations

import pytest

from pgsched.config import ENVIRONMENT
from pgsched.services.check import settings

VALUES = {"PGSCHED_EMBEDDED": "1", "PGSCHED_LOG": "info", "PGSCHED_LOG_FORMAT": "json", "PGSCHED_BACKLOG_S": "300",
          "PGSCHED_FLEET": "3f2504e0-4f89-11d3-9a0c-0305e82c3301"}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [*(name for name in ENVIRONMENT if "<" not in name), "PGSCHED_SQL_DSN_WAREHOUSE", "PGSCHED_ALERT_APPRISE_OPS"],
)
def test_a_variable_that_pgsched_reads_is_no_mistake(name: str) -> None:
    assert [*settings({name: VALUES.get(name, "x")})] == []


def test_a_variable_with_an_invalid_database_name_fails_the_check() -> None:
    (found,) = settings({"PGSCHED_SQL_DSN_A.B": "dbname=x"})
    assert (found.level, found.exit_code) == ("fail", 2)
    assert "expected lower-case letters" in found.text


def test_a_mistyped_variable_gives_a_warning() -> None:
    (found,) = settings({"PGSCHED_SQL_DSM_WAREHOUSE": "dbname=x"})
    assert (found.name, found.level) == ("PGSCHED_SQL_DSM_WAREHOUSE", "warn")
