"""The URLs of databases: which schemes mean PostgreSQL, and the names of other products.

SQLAlchemy, Django (dj-database-url, django-environ) and Heroku write PostgreSQL's scheme in different ways.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SCHEME = re.compile(r"([a-z][a-z0-9.-]*)(\+[a-z0-9_]+)?://", re.I)
POSTGRESQL = frozenset({"postgresql", "postgres", "psql", "pgsql", "postgis", "timescale", "timescalegis"})
# Schemes of other products. Some of them speak PostgreSQL's protocol, but lack what pgsched needs.
OTHERS = {
    "amqp": "RabbitMQ",
    "amqps": "RabbitMQ",
    "clickhouse": "ClickHouse",
    "cockroach": "CockroachDB",
    "cockroachdb": "CockroachDB",
    "duckdb": "DuckDB",
    "mariadb": "MariaDB",
    "mongodb": "MongoDB",
    "mssql": "SQL Server",
    "mssqlms": "SQL Server",
    "mysql": "MySQL",
    "mysql2": "MySQL",
    "mysql-connector": "MySQL",
    "mysqlgis": "MySQL",
    "oracle": "Oracle",
    "oraclegis": "Oracle",
    "pyamqp": "RabbitMQ",
    "redis": "Redis",
    "rediss": "Redis",
    "redshift": "Amazon Redshift",
    "snowflake": "Snowflake",
    "spatialite": "SQLite",
    "sqlite": "SQLite",
    "sqlite3": "SQLite",
    "sqlserver": "SQL Server",
    "valkey": "Valkey",
    "valkeys": "Valkey",
}


class DatabaseUrl(NamedTuple):
    """A connection string that is a URL.

    `scheme`: in lower case. `driver`: what SQLAlchemy writes after the +; None without one. `address`: the rest, after
    `://`.
    """

    scheme: str
    driver: str | None
    address: str


def split_url(dsn: str) -> DatabaseUrl | None:
    """Return the parts of a connection string that is a URL; None for `host=... dbname=...`."""
    text = dsn.strip()
    found = SCHEME.match(text)
    if found is None:
        return None
    return DatabaseUrl(found[1].lower(), found[2] and found[2][1:].lower(), text[found.end() :])


def other_product(dsn: str) -> str | None:
    """Return the name of the product whose URL this is; None where it may be PostgreSQL's."""
    url = split_url(dsn)
    if url is None or url.scheme in POSTGRESQL:
        return None
    return OTHERS.get(url.scheme, f"an unknown product ({url.scheme}://)")
