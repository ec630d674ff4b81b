"""An enqueue with bad values is refused in one clear line, in SQL and in Python."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched import App, InputError


@pytest.mark.parametrize("function", ["enqueue", "enqueue_result"])
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("NULL", "task: must not be null"),
        ("'t', delay => '-5 days'", "delay: -5 days is negative"),
        ("'t', unique_key => 'k', delay => '-1 second'", "delay: -00:00:01 is negative"),
    ],
)
def test_sql_says_what_is_wrong(db: psycopg.Connection[Any], function: str, call: str, said: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        db.execute(f"SELECT pgsched.{function}({call})".encode())
    assert caught.value.diag.message_primary == said
    assert caught.value.diag.schema_name == "pgsched"


@pytest.mark.parametrize("given", [{"unique_key": "\ud800"}, {"idempotency_key": "a\udfff"}, {"queue": "\ud800"},
                                   {"concurrency_key": "\ud800"}, {"tags": ["\ud800"]}])  # fmt: skip
def test_half_a_surrogate_pair_is_refused(app: App, greet: Any, given: dict[str, Any]) -> None:
    (field,) = given
    with pytest.raises(InputError, match=f"{field}: holds half a surrogate pair"):
        greet.options(**given).enqueue("x")
