"""Claims start in (priority, available_at, id) order, in whatever order the statement returned them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from uuid import uuid4

import pytest

from pgsched.core.model import Claim, Outcome, Result, Settlement, keys_of
from pgsched.db.queries.runs.claim_rows import COLUMNS, FEW, claims_of

Key = tuple[int, float, int]  # priority, second, id
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = uuid4()


def row(key: Key) -> tuple[object, ...]:
    """Return a row as the statement `claim` returns it: a claim without its token, with JSON as text."""
    priority, second, run_id = key
    claim = Claim(run_id, TOKEN, 1, 3, "q", priority, "task", "t", '{"i": 1}',
                  available_at=str(BEGAN + timedelta(seconds=second)))  # fmt: skip
    return claim[:1] + claim[2:]


@pytest.mark.parametrize(
    "in_order",
    [
        [(0, 2, 4), (5, 1, 1), (5, 1, 3)],
        [(5, 1, 3), (5, 2, 1), (5, 3, 2)],
        [(5, 1, 1), (5, 1, 2), (5, 1, 3)],
        [(0, 3, 4), (0, 4, 3), (5, 1, 2), (9, 1, 1)],
        [(5, 9, 4), (5, 9.1, 3), (5, 9.12, 2), (5, 10, 1)],
    ],
    ids=["by priority", "by instant", "by number", "by all", "by parts of a second"],
)
def test_claims_come_in_order(in_order: list[Key]) -> None:
    for answered in permutations(in_order):
        claims = claims_of(TOKEN, COLUMNS, [row(key) for key in answered])
        assert [claim.id for claim in claims] == [run_id for _, _, run_id in in_order]
        assert {claim.token for claim in claims} == {TOKEN}
        assert claims[0].args == {"i": 1}


@pytest.mark.parametrize("args", ['{"i": [1, null]}', "null", "[]", "1" * 5000])
@pytest.mark.parametrize("options", [None, "null", '{"env": {}}'])
def test_a_single_row_is_read_like_one_of_several(args: str, options: str | None) -> None:
    one = [*row((5, 1, 1))]
    one[COLUMNS.index("args")], one[COLUMNS.index("options")] = args, options
    (alone,) = claims_of(TOKEN, COLUMNS, [one])
    assert alone == claims_of(TOKEN, COLUMNS, [one, row((5, 1, 2))])[0]
    assert alone.key == (1, TOKEN.int) and keys_of([alone]) == [alone.key]


@pytest.mark.parametrize("n", [0, 1, FEW - 1, FEW, FEW + 1, 2 * FEW + 50])
def test_no_row_is_lost_when_rows_are_read_a_few_at_a_time(n: int) -> None:
    claims = claims_of(TOKEN, COLUMNS, [row((5, 1, run_id)) for run_id in range(n)])
    assert [claim.id for claim in claims] == [*range(n)]


def test_each_value_becomes_the_field_of_its_column() -> None:
    values = [5, *(f"value {n}" for n in range(2, len(Claim._fields)))]
    values[COLUMNS.index("args")], values[COLUMNS.index("options")] = "[1]", "[2]"
    (claim,) = claims_of(TOKEN, COLUMNS, [values])
    told = claim._replace(args="[1]", options="[2]")  # type: ignore[arg-type]
    assert (claim.args, claim.options) == ([1], [2])
    assert [*told] == [values[0], TOKEN, *values[1:]]


def test_columns_are_found_by_name_in_whatever_order_they_come() -> None:
    columns = tuple(reversed(COLUMNS))
    rows = [row((5, 1, 1)), row((5, 1, 2))]
    assert claims_of(TOKEN, columns, [each[::-1] for each in rows]) == claims_of(TOKEN, COLUMNS, rows)


def test_a_column_that_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        claims_of(TOKEN, COLUMNS[:-1], [row((5, 1, 1))[:-1]])


def test_a_settlement_copies_the_fields_that_it_shares_with_its_claim() -> None:
    claim = Claim(5, TOKEN, *range(2, len(Claim._fields)))  # type: ignore[arg-type]
    settlement = Settlement.of(claim, Outcome(Result.SUCCEEDED), 1.5)
    assert settlement[-2:] == (Outcome(Result.SUCCEEDED), 1.5)
    assert settlement.key == claim.key
    for name in set(Settlement._fields) & set(Claim._fields):
        assert getattr(settlement, name) == getattr(claim, name), name
    assert len(set(Settlement._fields) - set(Claim._fields)) == 2


def test_equal_texts_of_an_answer_become_one_object() -> None:
    """So thousands of claims hold few texts in memory."""

    def copied(run: int) -> list[object]:
        values = [*row((5, 1, run))]
        values[COLUMNS.index("task")] = "".join(["some ", "text"])
        return values

    one, two = claims_of(TOKEN, COLUMNS, [copied(1), copied(2)])
    assert one.task is two.task


def test_a_null_queue_or_kind_means_the_requested_queue_or_a_python_task() -> None:
    values = [*row((5, 1, 1))]
    queue, kind = (COLUMNS.index(name) for name in ("queue", "kind"))
    values[queue] = values[kind] = None
    (claim,) = claims_of(TOKEN, COLUMNS, [values], "q")
    assert (claim.queue, claim.kind) == ("q", "task")
    values[queue], values[kind] = "other", "sql"
    (claim,) = claims_of(TOKEN, COLUMNS, [values], "q")
    assert (claim.queue, claim.kind) == ("other", "sql")
