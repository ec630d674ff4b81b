"""Errors of the database become errors of pgsched, with advice."""

from __future__ import annotations

import psycopg
import pytest

import pgsched
from pgsched.db.connection.failures import explain_error


def test_a_lock_timeout_becomes_lock_timeout_with_advice() -> None:
    error = explain_error(psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"))
    assert isinstance(error, pgsched.LockTimeout)
    assert "unique key" in str(error) and "nothing was done" in str(error)


def test_a_deadlock_becomes_lock_timeout_with_advice() -> None:
    error = explain_error(psycopg.errors.DeadlockDetected("deadlock detected"))
    assert isinstance(error, pgsched.LockTimeout)
    assert "waited for each other" in str(error) and "nothing was done, try again" in str(error)


@pytest.mark.parametrize("kind", [psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError])
def test_a_value_that_the_driver_cannot_send_is_a_wrong_input(kind: type[psycopg.Error]) -> None:
    error = explain_error(kind("cannot adapt type 'object'"))
    assert (type(error), str(error)) == (pgsched.InputError, "cannot adapt type 'object'")


def test_a_connection_that_is_in_use_does_not_point_at_the_network() -> None:
    error = explain_error(psycopg.InterfaceError("another operation is in progress"))
    assert type(error) is pgsched.PgschedError
    assert str(error) == (
        "the connection cannot be used now: another operation is in progress; make one call at a time on a connection"
    )


def test_a_lost_connection_is_an_unreachable_database() -> None:
    error = explain_error(psycopg.OperationalError("the connection is closed"))
    assert isinstance(error, pgsched.DatabaseUnreachable)
