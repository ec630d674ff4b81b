"""Inspection of a server and of the schema in it, for `pgsched check` and `pgsched doctor`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import first_row, rows


def server(conn: Connection[Any]) -> Row:
    """Return version, role, settings and load of the server: `check_server` in sql/doctor.sql."""
    found = first_row(conn, "check_server")
    assert found is not None
    return found


def assert_fleet(conn: Connection[Any], fleet: UUID) -> None:
    """Check that the database is of this fleet. Raises WrongFleet where it is not."""
    first_row(conn, "check_fleet", {"fleet": fleet})


def roles_held(conn: Connection[Any]) -> list[str]:
    """Return which of pgsched's roles this login has."""
    return [row["role"] for row in rows(conn, "check_roles")]


def missing_grants(conn: Connection[Any]) -> list[str]:
    """Return what this login may not do with pgsched's objects although a worker or leader must, in words."""
    return [row["missing"] for row in rows(conn, "check_grants")]


def replication(conn: Connection[Any]) -> Row:
    """Return counts of standbys, and whether this login sees others' queries: `doctor_server` in sql/doctor.sql."""
    return first_row(conn, "doctor_server") or {}


def locks(conn: Connection[Any], longer_s: float) -> list[Row]:
    """Return sessions that have locked whole tables of ours for longer than `longer_s` seconds."""
    return rows(conn, "doctor_locks", {"longer_s": longer_s})


def waits(conn: Connection[Any], longer_s: float) -> list[Row]:
    """Return our sessions that have waited longer than `longer_s` seconds for a lock, and for which session."""
    return rows(conn, "doctor_waits", {"longer_s": longer_s})


def leader_locks(conn: Connection[Any]) -> list[Row]:
    """Return the sessions that hold the locks of the election and of the leader's transactions."""
    return rows(conn, "doctor_leader")


def vacuum_pins(conn: Connection[Any], older_s: float) -> list[Row]:
    """Return what keeps vacuum from removing dead rows, if it is older than `older_s` seconds."""
    return rows(conn, "doctor_pins", {"older_s": older_s})


def notification_queue(conn: Connection[Any]) -> Row:
    """Return how full the notification queue is (0 to 1), and the session with the oldest transaction."""
    return first_row(conn, "doctor_notify") or {}


def list_registered_workers(conn: Connection[Any]) -> list[Row]:
    """Return all workers that have not signed off, with their clocks and versions."""
    return rows(conn, "doctor_workers")


def broken_objects(conn: Connection[Any]) -> list[Row]:
    """Return indexes, triggers and policies that do not work: (what, name, of, text)."""
    return rows(conn, "doctor_objects")


def tables(conn: Connection[Any]) -> list[Row]:
    """Return the counts of dead rows of our tables, as the server's statistics are at this moment."""
    conn.execute("SELECT pg_stat_clear_snapshot()")
    return rows(conn, "doctor_tables")


def long_locks(conn: Connection[Any], held_s: float, waits_s: float) -> list[Row]:
    """Return locks that are held longer than `held_s` seconds while another has waited longer than `waits_s`."""
    return rows(conn, "doctor_long_locks", {"held_s": held_s, "waits_s": waits_s})


def session_counts(conn: Connection[Any]) -> Row:
    """Return how many sessions, grants of locks and contenders there are. Raises NotPermitted."""
    return first_row(conn, "doctor_sessions") or {}
