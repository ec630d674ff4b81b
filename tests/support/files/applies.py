"""Apply files of jobs in tests, and look at what that did."""

from __future__ import annotations

from typing import Any

import psycopg

from pgsched.core.jobs_file.difference import Difference
from pgsched.db.connection.connect import Connection
from pgsched.services.jobs_file import applying
from pgsched.services.jobs_file.planning import Options
from tests.support.files.jobs_files import file_of


def apply(conn: Connection[Any], text: str, **options: Any) -> Difference:
    return applying.apply(conn, file_of(text), Options(**{"owner": "ops"} | options))


def actions(found: Difference) -> list[str]:
    return [f"{one.action} {one.key[1]}" for one in found.changes]


def column(db: psycopg.Connection[Any], query: str) -> list[Any]:
    return [row[0] for row in db.execute(query.encode())]
