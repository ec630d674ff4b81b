"""Adapters that let pgsched use connections of other libraries, without importing these libraries."""
