"""SQLAlchemy tables for backfills, passed-over stretches, next slots, kept keys, the audit: db/schema/tables.py."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, INET, JSONB

from pgsched.db.schema.table_parts import Instant, Integers, Role, key, metadata, need, partial

passed_over = Table(
    "passed_over",
    metadata,
    key("id"),
    Column("job_id", BigInteger, ForeignKey("pgsched.jobs.id", ondelete="CASCADE"), nullable=False),
    Column("schedule", Text),
    need("timezone", Text),
    need("anchor_at", Instant),
    need("after_at", Instant),
    need("until_at", Instant),
    need("state", Text),
    need("reason", Text),
    Column("calendar", Text),
    need("on_excluded", Text),
    Column("shifts", JSONB),
)

next_slots = Table(
    "next_slots",
    metadata,
    key("job_id"),
    need("schedule", Text),
    need("timezone", Text),
    need("anchor_at", Instant),
    need("after_at", Instant),
    need("slots", ARRAY(Instant)),
    need("offsets", Integers),
    need("rules", Text),
    Column("refresh_at", Instant),
    need("nominals", ARRAY(Instant)),
    Column("excluded", Text),
)

backfills = Table(
    "backfills",
    metadata,
    key("id"),
    need("job_id", BigInteger),
    need("job", Text),
    need("schedule", Text),
    need("timezone", Text),
    need("anchor_at", Instant),
    need("from_at", Instant),
    need("to_at", Instant),
    need("mode", Text),
    need("max_active", Integer),
    need("reverse", Boolean),
    need("priority", SmallInteger),
    Column("slots", BigInteger),
    Column("cursor_at", Instant),
    need("considered", BigInteger),
    need("started", BigInteger),
    need("requested_by", Text),
    need("created_at", Instant),
    Column("cancelled_at", Instant),
    Column("cancelled_by", Text),
    Column("finished_at", Instant),
    Column("error", Text),
    Column("together", BigInteger),
    Column("after_backfill", BigInteger),
    partial("backfills_open", "id", where="finished_at IS NULL"),
)

kept_keys = Table(
    "kept_keys",
    metadata,
    key("scope", Text),
    key("key", Text),
    Column("run_id", BigInteger),
    need("task", Text),
    need("created_at", Instant),
    need("expires_at", Instant),
    Column("state", Text),
    Column("result", JSONB),
    Column("error", Text),
    Column("finished_at", Instant),
    Column("owner", Role),
    Column("met", Boolean),
    Index("kept_keys_expires_at", "expires_at"),
    partial("kept_keys_met", "run_id", where="met"),
)

audit = Table(
    "audit",
    metadata,
    key("id"),
    need("at", Instant),
    need("who", Text),
    Column("acting_as", Text),
    Column("application", Text),
    Column("address", INET),
    need("action", Text),
    need("what", Text),
    need("name", Text),
    Column("change", JSONB),
    Column("for_user", Text),
    Index("audit_of", "what", "name", "id"),
    Index("audit_at", "at"),
)
