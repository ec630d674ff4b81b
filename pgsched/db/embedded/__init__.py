"""The embedded PostgreSQL server: one cluster, shared by all processes that use it."""
