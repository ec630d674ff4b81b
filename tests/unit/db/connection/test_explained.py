"""What an error of the database is called, for who asked and for who catches."""

from __future__ import annotations

import psycopg

import pgsched
from pgsched.db.connection.failures import explain_error


def test_a_lock_that_was_not_had_is_an_error_of_its_own_with_advice() -> None:
    error = explain_error(psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"))
    assert isinstance(error, pgsched.LockTimeout)
    assert "unique key" in str(error) and "nothing was done" in str(error)
