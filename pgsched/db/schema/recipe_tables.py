"""SQLAlchemy tables for sessions, locks, the store and item queues; see db/schema/tables.py."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, SmallInteger, Table, Text, UniqueConstraint
from sqlalchemy.dialects.postgresql import INTERVAL, JSONB, UUID

from pgsched.db.schema.table_parts import Instant, Role, key, metadata, need, partial

ByteOrder = Text(collation="C")  # sorted by its bytes, so that an index finds a prefix

sessions = Table(
    "sessions",
    metadata,
    key("id"),
    need("token", UUID),
    need("name", Text),
    need("owner", Role),
    need("ttl", INTERVAL),
    need("opened_at", Instant),
    need("lease_until", Instant),
    Column("ended_at", Instant),
    UniqueConstraint("token", name="sessions_token_key"),
    Index("sessions_of_owner", "owner"),
)

locks = Table(
    "locks",
    metadata,
    key("name", ByteOrder),
    need("owner", Role),
    need("kind", Text),
    Column("capacity", Integer),
    need("last_place", BigInteger),
    need("used_at", Instant),
    need("number", BigInteger),
    Index("locks_of_owner", "owner"),
)

lock_places = Table(
    "lock_places",
    metadata,
    Column("lock", ByteOrder, ForeignKey("pgsched.locks.name", ondelete="CASCADE"), primary_key=True),
    key("place"),
    Column("session", BigInteger, ForeignKey("pgsched.sessions.id", ondelete="CASCADE"), nullable=False),
    need("token", UUID),
    need("mode", Text),
    Column("fence", BigInteger),
    Column("note", Text),
    need("since", Instant),
    Column("give_up_at", Instant),
    Column("granted_at", Instant),
    Column("left_at", Instant),
    need("number", BigInteger),
    UniqueConstraint("token", name="lock_places_token_key"),
    Index("lock_places_of_session", "session"),
    partial("lock_places_held", "lock", "fence", where="fence IS NOT NULL", unique=True),
    partial("lock_places_one_holder", "lock", where="fence IS NOT NULL AND mode = 'exclusive'", unique=True),
)

lock_losses = Table(
    "lock_losses",
    metadata,
    Column("session", BigInteger, ForeignKey("pgsched.sessions.id", ondelete="CASCADE"), primary_key=True),
    key("fence"),
)

name_grants = Table("name_grants", metadata, key("prefix", Text), key("role", Role))

role_room = Table(
    "role_room", metadata, key("what", ByteOrder), key("owner", Role), key("counted_at"), need("room_until", BigInteger)
)

store_roots = Table(
    "store_roots",
    metadata,
    key("root", ByteOrder),
    need("owner", Role),
    need("version", BigInteger),
    need("kept_after", BigInteger),
    need("keys", BigInteger),
    Column("look_at", Instant),
    need("watched_until", Instant),
    need("changed_at", Instant),
    need("number", BigInteger),
    Index("store_roots_of_owner", "owner"),
)

store = Table(
    "store",
    metadata,
    key("key", ByteOrder),
    Column("root", ByteOrder, ForeignKey("pgsched.store_roots.root"), nullable=False),
    need("value", JSONB),
    need("version", BigInteger),
    need("revision", BigInteger),
    Column("session", BigInteger, ForeignKey("pgsched.sessions.id")),
    need("created_at", Instant),
    need("changed_at", Instant),
    Index("store_of_root", "root"),
    partial("store_of_session", "session", where="session IS NOT NULL"),
    partial("store_bound", "root", "session", where="session IS NOT NULL"),
)

store_nodes = Table(
    "store_nodes",
    metadata,
    Column("key", ByteOrder, ForeignKey("pgsched.store.key", ondelete="CASCADE"), primary_key=True),
    need("made_at", BigInteger),
    need("children", BigInteger),
)

store_changes = Table(
    "store_changes",
    metadata,
    Column("root", ByteOrder, ForeignKey("pgsched.store_roots.root", ondelete="CASCADE"), primary_key=True),
    key("version"),
    need("key", ByteOrder),
    Column("value", JSONB),
    need("changed_at", Instant),
)

item_queues = Table(
    "item_queues",
    metadata,
    key("id"),
    need("name", Text),
    need("owner", Role),
    need("looked_at", Instant),
    UniqueConstraint("name", name="item_queues_name_key"),
    Index("item_queues_of_owner", "owner"),
)

items = Table(
    "items",
    metadata,
    key("id"),
    need("queue", BigInteger),
    Column("session", BigInteger),
    need("available_at", Instant),
    need("put_at", Instant),
    Column("held_at", Instant),
    Column("token", UUID),
    need("attempt", Integer),
    need("max_attempts", Integer),
    need("priority", SmallInteger),
    need("value", JSONB),
    Column("error", Text),
    partial("items_line", "queue", "priority", "available_at", "id", where="session IS NULL"),
    partial("items_held", "queue", "session", "token", where="session IS NOT NULL"),
)

item_consumers = Table(
    "item_consumers",
    metadata,
    key("queue"),
    key("session"),
    Column("waiting_since", Instant),
    Index("item_consumers_of_session", "session"),
    partial("item_consumers_waiting", "queue", "waiting_since", where="waiting_since IS NOT NULL"),
)
