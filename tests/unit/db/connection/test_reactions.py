"""Failures of the database are classified by what they mean for the caller."""

from __future__ import annotations

import psycopg

from pgsched.db.connection.failures import Reaction, classify


def test_exceeding_a_limit_of_the_server_is_the_fault_of_the_value() -> None:
    """A full queue of notifications has SQLSTATE 54000 too, but is temporary: tests/hostile covers it."""
    assert classify(psycopg.errors.ProgramLimitExceeded("index row requires 9000 bytes")) is Reaction.VALUE
