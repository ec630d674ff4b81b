"""Translate the options after the `?` of a database URL from what other libraries write into libpq's options.

Invariant: no option is dropped unless its name is listed here. libpq refuses all others that it does not know.

SQLAlchemy, asyncpg, Django and Prisma put settings of their own pools and caches into the URL that programs share. They
say nothing about which database it is, or how to reach it.
"""

from __future__ import annotations

import math
import re
from urllib.parse import quote, unquote

# Options that are dropped, by the library that reads them. None of them changes which database is reached, or how safe
# the way is. Upper and lower case are the same.
IGNORED_BY = {
    "SQLAlchemy": (
        "async_fallback",
        "max_overflow",
        "plugin",
        "pool_pre_ping",
        "pool_recycle",
        "pool_size",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
    ),
    "psycopg": ("autocommit", "prepare_threshold"),
    "asyncpg": (
        "command_timeout",
        "max_cacheable_statement_size",
        "max_cached_statement_lifetime",
        "max_size",
        "min_size",
        "statement_cache_size",
    ),
    "Django": (
        "atomic_requests",
        "conn_health_checks",
        "conn_max_age",
        "disable_server_side_cursors",
        "pool",
        "server_side_binding",
    ),
    "Prisma": ("connection_limit", "pgbouncer", "pool_timeout", "socket_timeout"),
}
IGNORED = frozenset(name for names in IGNORED_BY.values() for name in names)
SSL = {
    **dict.fromkeys(("true", "1", "on", "yes"), "require"),
    **dict.fromkeys(("false", "0", "off", "no"), "disable"),
    **{mode: mode for mode in ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")},
}
SCHEMA = ("schema", "currentschema")  # Prisma's, and that of dj-database-url and JDBC
SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
PORT = re.compile(r"(?P<host>[^:]*|\[[^\]]*\]):(?P<port>[0-9]{1,5})")


def translate_options(query: str, driver: str | None) -> str:
    """Return the options of a URL as libpq reads them.

    `query`: what stands after the `?`. `driver`: what stands after the + of the scheme; SQLAlchemy's rules hold then.
    """
    kept: list[str] = []
    hosts: list[str] = []
    ports: list[str] = []
    paths: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if driver is not None:
            value = value.replace("+", "%20")  # SQLAlchemy reads + as a space
        if name == "host":
            hosts.append(unquote(value))
        elif name == "port":
            ports.append(unquote(value))
        elif name.lower() in SCHEMA and value:
            paths += [unquote(value)] if value != "public" else []  # a pooler may refuse options: send none in vain
        elif name.lower() not in IGNORED:
            kept.append(translate_option(name, value, driver) if "=" in part else part)
    if paths:
        kept = add_search_path(kept, paths[-1])
    return "&".join([*translate_hosts(hosts, ports, driver), *kept])


def translate_option(name: str, value: str, driver: str | None) -> str:
    """Return one option by libpq's name; an option that is libpq's, or unknown, stays."""
    if name == "ssl" and (mode := SSL.get(value.lower())):
        return f"sslmode={mode}"
    if name == "timeout" and driver in ("asyncpg", "pg8000") and SECONDS.fullmatch(value):
        return f"connect_timeout={math.ceil(float(value))}"
    return f"{name}={value}"


def translate_hosts(hosts: list[str], ports: list[str], driver: str | None) -> list[str]:
    """Return the options host and port, with several servers as libpq names them: separated by commas.

    SQLAlchemy writes `host=a:5432&host=b:5433`. libpq would read the last of them only, and the port as part of it.
    """
    found = [PORT.fullmatch(host) if driver is not None or len(hosts) > 1 else None for host in hosts]
    if any(found):
        ports = [match["port"] if match else "" for match in found]
        hosts = [match["host"].strip("[]") if match else host for match, host in zip(found, hosts, strict=True)]
    named = (("host", hosts), ("port", ports))
    return [f"{name}={quote(','.join(values), safe='')}" for name, values in named if values]


def add_search_path(options: list[str], schema: str) -> list[str]:
    """Return the options with a setting of search_path, besides the settings that they have."""
    setting = quote("-c search_path=" + schema.replace("\\", "\\\\").replace(" ", "\\ "), safe="")
    given = [part.partition("=")[2] for part in options if part.startswith("options=")]
    others = [part for part in options if not part.startswith("options=")]
    return [*others, f"options={'%20'.join([*given, setting])}"]
