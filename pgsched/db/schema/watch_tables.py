"""SQLAlchemy tables for retention, tasks, identity, rollups, failed duties and alerts; see db/schema/tables.py."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKey, Index, Integer, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL, JSONB, UUID

from pgsched.db.schema.table_parts import Instant, Role, key, metadata, need, partial

Bins = ARRAY(BigInteger)

retention = Table(
    "retention",
    metadata,
    key("name", Text),
    need("keep", JSONB),
    need("archive", Boolean),
    need("keep_minutes", INTERVAL),
    need("keep_hours", INTERVAL),
    need("keep_audit", INTERVAL),
)

alert_defaults = Table(
    "alert_defaults",
    metadata,
    key("name", Text),
    Column("alert_after_failures", Integer),
    Column("max_lateness", INTERVAL),
    Column("max_duration", INTERVAL),
    Column("expect_every", INTERVAL),
    Column("finish_by", INTERVAL),
    Column("alert_to", ARRAY(Text)),
    Column("dead_runs", Integer),
    need("dead_runs_within", INTERVAL),
)

archived_runs = Table(
    "archived_runs",
    metadata,
    Column("run_id", BigInteger, primary_key=True, autoincrement=False),
    Column("job_id", BigInteger),
    Column("job", Text),
    need("queue", Text),
    need("task", Text),
    need("state", Text),
    Column("scheduled_at", Instant),
    key("finished_at", Instant),
    need("archived_at", Instant),
    need("run", JSONB),
    Column("outside_name", Text),
)

tasks = Table(
    "tasks",
    metadata,
    key("task", Text),
    key("app", Text),
    key("release", Text),
    need("options", JSONB),
    need("schema", JSONB),
    need("owner", Role),
    need("first_seen_at", Instant),
    Index("tasks_of_app", "app"),
)

identity = Table("identity", metadata, key("name", Text), need("database", UUID), need("fleet", UUID))

rollups = Table(
    "rollups",
    metadata,
    key("width", Text),
    key("from_at", Instant),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    key("queue", Text),
    key("task", Text),
    key("state", Text),
    need("runs", BigInteger),
    need("started", BigInteger),
    need("retried", BigInteger),
    need("duration_s", Double),
    need("wait_s", Double),
    need("late_s", Double),
    need("late", BigInteger),
    Column("late_max_s", Double),
    need("durations", Bins),
    need("waits", Bins),
    need("lates", Bins),
    need("last_at", Instant),
    partial("rollups_of_job", "job_id", "from_at", where="job_id <> 0"),
)

set_aside = Table(
    "set_aside",
    metadata,
    key("duty", Text),
    key("row_id", Text),
    need("error", Text),
    need("tries", Integer),
    need("since", Instant),
    need("next_at", Instant),
)

rollup_mark = Table("rollup_mark", metadata, key("name", Text), need("counted_until", Instant))

alerts = Table(
    "alerts",
    metadata,
    key("id"),
    need("job_id", BigInteger),
    Column("job", Text),
    need("kind", Text),
    need("opened_at", Instant),
    Column("closed_at", Instant),
    need("details", Text),
    Column("run_id", BigInteger),
    Column("recovery", Text),
    Column("alert_to", ARRAY(Text)),
    partial("alerts_open", "job_id", "kind", where="closed_at IS NULL", unique=True),
    Index("alerts_of_job", "job_id", "id"),
    partial("alerts_closed", "closed_at", where="closed_at IS NOT NULL"),
)

alert_deliveries = Table(
    "alert_deliveries",
    metadata,
    Column("alert_id", BigInteger, ForeignKey("pgsched.alerts.id", ondelete="CASCADE"), primary_key=True),
    key("event", Text),
    key("sink", Text),
    need("attempts", Integer),
    need("next_at", Instant),
    Column("delivered_at", Instant),
    Column("error", Text),
    partial("alert_deliveries_due", "next_at", where="delivered_at IS NULL"),
)
