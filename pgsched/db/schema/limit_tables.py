"""SQLAlchemy tables for queues, limits, pauses and rate buckets; see db/schema/tables.py."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Computed, Double, Integer, Table, Text
from sqlalchemy.dialects.postgresql import INTERVAL, JSONB

from pgsched.db.schema.table_parts import Instant, key, metadata, need, partial

LIMITED = "concurrency_limit IS NOT NULL OR rate IS NOT NULL OR fair OR ageing IS NOT NULL"

queues = Table(
    "queues",
    metadata,
    key("name", Text),
    Column("concurrency_limit", Integer),
    Column("rate", Integer),
    Column("rate_period", INTERVAL),
    Column("rate_burst", Integer),
    Column("max_depth", BigInteger),
    need("on_full", Text),
    need("fair", Boolean),
    Column("ageing", INTERVAL),
    Column("applied_at", Instant),
    Column("limited", Boolean, Computed(LIMITED, persisted=True), nullable=False),
    Column("keep", JSONB),
    partial("queues_to_apply", "name", where="applied_at IS NULL"),
)

limits = Table(
    "limits",
    metadata,
    key("name", Text),
    Column("concurrency", Integer),
    Column("rate", Integer),
    Column("rate_period", INTERVAL),
    Column("rate_burst", Integer),
    need("ordered", Boolean),
    need("weight", Integer),
    Column("applied_at", Instant),
    Column("declared_by", Text),
    partial("limits_to_apply", "name", where="applied_at IS NULL"),
)

pauses = Table(
    "pauses",
    metadata,
    key("what", Text),
    key("name", Text),
    need("paused_at", Instant),
    need("paused_by", Text),
    Column("reason", Text),
    Column("resume_at", Instant),
    Column("waits_for", Integer),
)

refunds = Table(
    "refunds",
    metadata,
    Column("run_id", BigInteger, primary_key=True, autoincrement=False),
    key("claimed_at", Instant),
    need("queue", Text),
    Column("concurrency_key", Text),
)

buckets = Table(
    "buckets",
    metadata,
    key("name", Text),
    need("tokens", Double),
    need("at", Instant),
    need("unstarted", Integer),
)
