"""What `pgsched check` and `pgsched doctor` ask of a server and of the schema in it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import one, rows


def server(conn: Connection[Any]) -> Row:
    """Version, role, settings and load of the server: check_server in sql/doctor.sql."""
    found = one(conn, "check_server")
    assert found is not None
    return found


def assert_fleet(conn: Connection[Any], fleet: UUID) -> None:
    """Raise WrongFleet if the database is of another fleet."""
    one(conn, "check_fleet", {"fleet": fleet})


def roles_held(conn: Connection[Any]) -> list[str]:
    """Which of pgsched's roles this login has."""
    return [row["role"] for row in rows(conn, "check_roles")]


def missing_grants(conn: Connection[Any]) -> list[str]:
    """What this login may not do with pgsched's tables, in words."""
    return [row["missing"] for row in rows(conn, "check_grants")]


def replication(conn: Connection[Any]) -> Row:
    """Standbys, and whether this login sees the sessions of others: doctor_server in sql/doctor.sql."""
    return one(conn, "doctor_server") or {}


def locks(conn: Connection[Any], longer_s: float) -> list[Row]:
    """Sessions that have locked whole tables of ours for that long."""
    return rows(conn, "doctor_locks", {"longer_s": longer_s})


def waits(conn: Connection[Any], longer_s: float) -> list[Row]:
    """Sessions of ours that have waited that long for a lock, and for whom."""
    return rows(conn, "doctor_waits", {"longer_s": longer_s})


def leader_locks(conn: Connection[Any]) -> list[Row]:
    """Who holds the locks by which leaders follow each other."""
    return rows(conn, "doctor_leader")


def vacuum_pins(conn: Connection[Any], older_s: float) -> list[Row]:
    """What keeps dead rows from being taken away, and is that old."""
    return rows(conn, "doctor_pins", {"older_s": older_s})


def notification_queue(conn: Connection[Any]) -> Row:
    """How full the queue of notifications is, and whose transaction is the oldest."""
    return one(conn, "doctor_notify") or {}


def workers(conn: Connection[Any]) -> list[Row]:
    """All workers that have not signed off, with their clocks and versions."""
    return rows(conn, "doctor_workers")


def broken_objects(conn: Connection[Any]) -> list[Row]:
    """Tables, indexes, triggers and policies that do not work: what, name, of, text."""
    return rows(conn, "doctor_objects")


def tables(conn: Connection[Any]) -> list[Row]:
    """The figures of dead rows of our tables, as the server's statistics have them at this moment."""
    conn.execute("SELECT pg_stat_clear_snapshot()")
    return rows(conn, "doctor_tables")
