"""What a failure of the database means."""

from __future__ import annotations

import psycopg

from pgsched.db.connection.failures import Reaction, classify


def test_a_value_beyond_a_limit_of_the_server_is_at_fault_itself() -> None:
    """54000 is also what a full queue of notifications says, which passes: tests/hostile has that."""
    assert classify(psycopg.errors.ProgramLimitExceeded("index row requires 9000 bytes")) is Reaction.VALUE
