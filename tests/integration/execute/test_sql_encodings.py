"""Statements of SQL jobs in a session whose client encoding is not UTF-8."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched.db.sql_jobs import SqlText, count_rows, merge_parameters


@pytest.mark.parametrize("encoding", ["UTF8", "SJIS", "EUC_JP"])
@pytest.mark.parametrize("parameters", [{}, {"a": "表"}])
def test_a_text_is_sent_in_the_encoding_of_its_session(dsn: str, encoding: str, parameters: dict[str, Any]) -> None:
    """In SJIS the second byte of this character is a backslash."""

    async def send() -> Any:
        async with await psycopg.AsyncConnection.connect(make_conninfo(dsn, client_encoding=encoding)) as conn:
            await conn.execute("CREATE TEMP TABLE got (word text)")
            word = "%(a)s" if parameters else "'表'"
            await conn.wait(
                count_rows(
                    conn.pgconn, merge_parameters(conn, SqlText(f"INSERT INTO got VALUES ({word})", parameters, None))
                )
            )
            return await (await conn.execute("SELECT word FROM got")).fetchone()

    assert asyncio.run(send()) == ("表",)
