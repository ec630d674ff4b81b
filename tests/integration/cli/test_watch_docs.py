"""docs/how-to/retention.md and alerts.md: their examples run, and they explain every figure and kind of alert."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.db.schema.tables import metadata
from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "how-to"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall((DOCS / page).read_text()) if found == kind]


@pytest.mark.parametrize("page", ["retention.md", "alerts.md"])
def test_the_examples_run(pgsched: Callable[..., Any], db: psycopg.Connection, page: str) -> None:
    pgsched("job", "add", "nightly", "--task", "t", "--schedule", "@daily")
    for line in "".join(blocks(page, "sh")).splitlines():
        said = pgsched(*shlex.split(line)[1:])
        assert said.code == 0, (line, said.err)
    for statement in blocks(page, "sql"):
        db.execute(statement.encode())
    for text in blocks(page, "json"):
        assert set(json.loads(text)) == {
            "id", "event", "kind", "job", "run_id", "details", "recovery", "opened_at", "closed_at", "text"
        }  # fmt: skip


def test_every_column_of_the_figures_is_explained() -> None:
    page = (DOCS / "retention.md").read_text()
    table = metadata.tables["pgsched.rollups"]
    assert {column.name for column in table.columns if f"`{column.name}`" not in page} <= {
        "width", "from_at", "queue", "state"
    }  # fmt: skip


def test_every_kind_of_alert_is_explained(db: psycopg.Connection) -> None:
    row = db.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'alerts_kind_check'"
    ).fetchone()
    assert row is not None
    kinds = set(re.findall(r"'(\w+)'", row[0])) - {"test"}
    page = (DOCS / "alerts.md").read_text()
    assert len(kinds) == 8
    assert {kind for kind in kinds if f"| `{kind}` |" not in page} == set()
