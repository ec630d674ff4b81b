"""SQLAlchemy tables for calendars that jobs share, and for what files of jobs declare; see db/schema/tables.py."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Date, ForeignKey, Index, Table, Text, Time
from sqlalchemy.dialects.postgresql import UUID

from pgsched.db.schema.table_parts import Instant, Integers, Role, Texts, key, metadata, need, partial

NAME = "pgsched.calendars.name"

calendars = Table(
    "calendars",
    metadata,
    key("name", Text),
    Column("description", Text),
    need("owner", Role),
    need("created_at", Instant),
    need("version", UUID(as_uuid=True)),
    need("replan", Boolean),
    need("id", BigInteger),
    partial("calendars_replan", "name", where="replan"),
)

calendar_times = Table(
    "calendar_times",
    metadata,
    key("id"),
    Column("calendar", Text, ForeignKey(NAME, onupdate="CASCADE", ondelete="CASCADE"), nullable=False),
    Column("from_date", Date),
    Column("until_date", Date),
    Column("weekdays", Integers),
    Column("from_time", Time),
    Column("until_time", Time),
    Column("reason", Text),
    Index("calendar_times_calendar", "calendar", "from_date"),
)

file_owners = Table(
    "file_owners",
    metadata,
    key("name", Text),
    need("role", Role),
    Column("applied_at", Instant),
)

file_entries = Table(
    "file_entries",
    metadata,
    Column("owner", Text, ForeignKey("pgsched.file_owners.name", onupdate="CASCADE"), primary_key=True),
    key("what", Text),
    key("name", Text),
    need("declared_at", Instant),
    Column("object_id", BigInteger),
    need("decides", Texts),
    Column("run_at", Instant),
    partial("file_entries_declared", "what", "name", where="what <> 'done'", unique=True),
)
