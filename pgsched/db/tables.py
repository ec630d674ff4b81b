"""SQLAlchemy's picture of the tables: for alembic's drift check and for the operator's filtered reads, nothing else.

The rule: migrations/*/*.sql make the tables and this page follows them; tests/migration/test_drift.py compares. CHECKs
and defaults are not repeated here, because alembic does not compare them and nobody writes rows through SQLAlchemy.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Computed,
    Date,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL, JSONB, TIMESTAMP, UUID
from sqlalchemy.types import TypeEngine

Instant = TIMESTAMP(timezone=True)
Texts = ARRAY(Text)
Integers = ARRAY(Integer)
Role = String  # what SQLAlchemy takes the type `name` for
Kind = TypeEngine[Any] | type[TypeEngine[Any]]
metadata = MetaData(schema="pgsched")


def need(name: str, kind: Kind) -> Column[Any]:
    """A column that is NOT NULL."""
    return Column(name, kind, nullable=False)


def key(name: str, kind: Kind = BigInteger) -> Column[Any]:
    """A column of the primary key."""
    return Column(name, kind, primary_key=True)


def partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index over the rows that `where` names."""
    return Index(name, *columns, unique=unique, postgresql_where=text(where))


jobs = Table(
    "jobs",
    metadata,
    key("id"),
    need("name", Text),
    Column("description", Text),
    need("kind", Text),
    need("task", Text),
    need("args", JSONB),
    need("queue", Text),
    need("priority", SmallInteger),
    Column("tags", Texts),
    Column("schedule", Text),
    need("timezone", Text),
    Column("run_at", Instant),
    Column("starts_at", Instant),
    Column("ends_at", Instant),
    Column("max_runs", Integer),
    need("jitter", INTERVAL),
    need("delete_after_run", Boolean),
    need("overlap", Text),
    need("max_buffer", Integer),
    Column("retry_within", INTERVAL),
    need("misfire_after", INTERVAL),
    need("catch_up", Text),
    need("max_catch_up", Integer),
    need("catch_up_window", INTERVAL),
    Column("start_deadline", INTERVAL),
    need("max_attempts", Integer),
    Column("timeout", INTERVAL),
    need("kill_after", INTERVAL),
    need("backoff", Text),
    need("backoff_base", INTERVAL),
    need("backoff_max", INTERVAL),
    need("backoff_jitter", Double),
    need("success_codes", Integers),
    Column("retry_codes", Integers),
    Column("dead_codes", Integers),
    Column("concurrency_key", Text),
    Column("concurrency_limit", Integer),
    Column("after_jobs", ARRAY(BigInteger)),
    need("paused", Boolean),
    Column("paused_at", Instant),
    Column("paused_by", Text),
    Column("paused_reason", Text),
    Column("declared_by", Text),
    need("owner", Role),
    need("created_at", Instant),
    need("updated_at", Instant),
    need("anchor_at", Instant),
    need("decided_until", Instant),
    Column("next_run_at", Instant),
    need("run_count", BigInteger),
    Column("error", Text),
    Column("error_at", Instant),
    UniqueConstraint("name", name="jobs_name_key"),
    partial("jobs_due", "next_run_at", where="NOT paused AND next_run_at IS NOT NULL"),
)

job_calendars = Table(
    "job_calendars",
    metadata,
    Column("job_id", BigInteger, ForeignKey("pgsched.jobs.id", ondelete="CASCADE"), primary_key=True),
    key("from_date", Date),
    need("until_date", Date),
    Column("reason", Text),
)

PHASE = """CASE state WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1 WHEN 'queued' THEN 2 WHEN 'running' THEN 2
WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END"""

runs = Table(
    "runs",
    metadata,
    key("id"),
    Column("job_id", BigInteger),
    Column("scheduled_at", Instant),
    need("available_at", Instant),
    need("created_at", Instant),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("lease_until", Instant),
    Column("worker_id", BigInteger),
    Column("token", UUID),
    need("attempt", Integer),
    need("max_attempts", Integer),
    need("priority", SmallInteger),
    need("crashes", SmallInteger),
    Column("phase", SmallInteger, Computed(PHASE, persisted=True), nullable=False),
    need("state", Text),
    need("queue", Text),
    need("kind", Text),
    need("task", Text),
    need("args", JSONB),
    need("origin", Text),
    Column("owner", Role),
    Column("timeout", INTERVAL),
    Column("kill_after", INTERVAL),
    Column("backoff", Text),
    Column("backoff_base", INTERVAL),
    Column("backoff_max", INTERVAL),
    Column("backoff_jitter", Double),
    Column("expires_at", Instant),
    Column("held_until", Instant),
    Column("options", JSONB),
    Column("unique_key", Text),
    Column("idempotency_key", Text),
    Column("concurrency_key", Text),
    Column("tags", Texts),
    Column("cancel_requested_at", Instant),
    Column("cancel_reason", Text),
    Column("reason", Text),
    Column("error", Text),
    Column("result", JSONB),
    Column("progress", JSONB),
    Column("covers_from", Instant),
    Column("covers_until", Instant),
    Column("covers_count", BigInteger),
    partial("runs_slot", "job_id", "scheduled_at", where="job_id IS NOT NULL", unique=True),
    partial("runs_unique_key", "unique_key", where="unique_key IS NOT NULL AND phase < 3", unique=True),
    partial("runs_idempotency_key", "idempotency_key", where="idempotency_key IS NOT NULL", unique=True),
    partial("runs_claim", "queue", "priority", "available_at", "id", where="phase = 2"),
    partial("runs_scheduled", "available_at", "id", where="phase = 1"),
    partial("runs_waiting", "available_at", "id", where="phase = 0"),
    partial("runs_expiring", "expires_at", where="phase < 3 AND expires_at IS NOT NULL"),
    partial("runs_held", "held_until", where="phase = 0 AND held_until IS NOT NULL"),
    partial("runs_open_of_job", "job_id", where="phase < 3 AND job_id IS NOT NULL"),
    partial("runs_finished", "finished_at", where="phase >= 3"),
    partial("runs_attention", "finished_at", where="phase = 4"),
)

attempts = Table(
    "attempts",
    metadata,
    key("run_id"),
    key("token", UUID),
    need("attempt", Integer),
    need("outcome", Text),
    Column("started_at", Instant),
    need("finished_at", Instant),
    Column("worker_id", BigInteger),
    Column("worker", Text),
    Column("error", Text),
    Column("traceback", Text),
    Column("log_tail", Text),
)

run_logs = Table(
    "run_logs",
    metadata,
    key("run_id"),
    key("attempt", Integer),
    key("seq", Integer),
    need("at", Instant),
    need("stream", Text),
    need("chunk", Text),
)

workers = Table(
    "workers",
    metadata,
    key("id"),
    need("name", Text),
    need("hostname", Text),
    need("pid", Integer),
    need("version", Text),
    Column("app", Text),
    need("concurrency", Integer),
    Column("queues", Texts),
    need("kinds", Texts),
    need("tasks", Texts),
    need("lease", INTERVAL),
    need("started_at", Instant),
    need("seen_at", Instant),
    Column("stopping_at", Instant),
    Column("stopped_at", Instant),
    need("running", Integer),
    need("abandoned", Integer),
    partial("workers_alive", "id", where="stopped_at IS NULL"),
)

queues = Table(
    "queues",
    metadata,
    key("name", Text),
    Column("paused_at", Instant),
    Column("paused_by", Text),
    Column("paused_reason", Text),
    Column("resume_at", Instant),
    Column("concurrency_limit", Integer),
    Column("rate", Integer),
    Column("rate_period", INTERVAL),
    Column("rate_burst", Integer),
    Column("max_depth", BigInteger),
    need("on_full", Text),
    need("fair", Boolean),
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
)

dependencies = Table(
    "dependencies",
    metadata,
    key("run_id"),
    key("parent_id"),
    need("on_failure", Text),
    Index("dependencies_parent", "parent_id"),
)

leader = Table(
    "leader",
    metadata,
    key("term"),
    need("holder", Text),
    need("hostname", Text),
    need("pid", Integer),
    need("elected_at", Instant),
    need("seen_at", Instant),
    Column("resigned_at", Instant),
)

locks = Table(
    "locks",
    metadata,
    key("name", Text),
    need("fence", BigInteger),
    Column("holder", Text),
    Column("token", UUID),
    Column("lease_until", Instant),
)
