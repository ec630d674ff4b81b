"""What the sessions of a test's own database do. Other tests use the same server at the same time."""

from __future__ import annotations

# Statements that count sessions. A condition may be added: f"{SESSIONS} AND query LIKE 'LISTEN%'".
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
BLOCKED = f"{SESSIONS} AND wait_event_type = 'Lock'"  # advisory locks as well
