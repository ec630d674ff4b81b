"""Parse connection strings, and show them without secrets.

Invariant: no text that leaves this module contains a part of a password, whatever is wrong with the string. libpq's own
messages quote what they could not read, so they are never passed on. A part of a
password that is not escaped could be read as a host, port or database: such a string is refused before connecting.
"""

from __future__ import annotations

import os
import re
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.errors import InputError

SCHEME = re.compile(r"([a-z][a-z0-9.-]*)(\+[a-z0-9_]+)?:/", re.I)
ESCAPES = "in a user or password write @ as %40, / as %2F, : as %3A, ? as %3F, % as %25 and a space as %20"
QUOTES = "a value with a space or a quote needs quotes: password='it\\'s secret'"
FORMS = "expected postgresql://user:password@host/database, or host=... dbname=... user=..."
# Words of libpq's error messages, and what to do about each error.
ADVICE = {
    "percent-encoded": f"a % is not followed by two hexadecimal digits: {ESCAPES}",
    "unexpected spaces": f"there is a space in it: {ESCAPES}",
    "unterminated quoted": f"a quote is not closed: {QUOTES}",
    'missing "="': f"{FORMS}; {QUOTES}",
    "key/value separator": f"what follows the ? has to be name=value&name=value; {ESCAPES}",
    "URI query parameter": f"it names an option that libpq does not know; {ESCAPES}",
    "connection option": f"it names an option that libpq does not know; {QUOTES}",
}
# Secrets for which libpq has no environment variable.
SECRETS_WITHOUT_VARIABLE = {"sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}


def parameters(dsn: str) -> dict[str, Any]:
    """Return what the string sets, by libpq's names. Raises InputError.

    SQLAlchemy's `postgresql+driver://` is accepted, too.
    """
    text = normalize_url(dsn)
    try:
        found = conninfo_to_dict(text)
    except psycopg.ProgrammingError as error:
        what = next((advice for words, advice in ADVICE.items() if words in str(error)), FORMS)
        raise unreadable_dsn_error(what) from None
    except (ValueError, UnicodeError):
        raise unreadable_dsn_error(FORMS) from None
    if not all(port.strip().isdigit() for port in str(found.get("port") or "0").split(",") if port):
        raise unreadable_dsn_error(f"its port is not a number: {ESCAPES}")
    return dict(found)


def normalize_url(dsn: str) -> str:
    """Return the string in the form that libpq reads.

    Raises InputError for another product's URL, and for an unescaped @.
    """
    url = SCHEME.match(dsn.strip())
    if url is None or not dsn.strip().startswith("//", url.end() - 1):
        return dsn
    scheme, driver = url[1].lower(), url[2]
    if scheme not in ("postgresql", "postgres"):
        raise InputError(f"dsn: this is a {scheme} URL; pgsched needs a PostgreSQL database: set PGSCHED_DSN", "dsn")
    address = dsn.strip()[url.end() + 1 :]
    credentials = "@" in address.partition("/")[0]
    where = address.partition("@")[2] if credentials else address
    if "@" in where.partition("?")[0]:
        raise unreadable_dsn_error(f"there is an @ after its host: {ESCAPES}")
    if driver is not None:
        address = re.sub(r"([?&])ssl=(?=[a-z-]+(&|$))", r"\1sslmode=", address)  # as asyncpg calls it
    return f"{scheme}://{address}"


def unreadable_dsn_error(what: str) -> InputError:
    """Return the error for a string that cannot be read."""
    return InputError(f"dsn: it cannot be read as a connection string: {what}", "dsn")


def describe_database(dsn: str) -> str:
    """Return the database and its host, for people.

    libpq takes what the string leaves open from a service file, and then from its environment variables.
    """
    given, environ = parameters(dsn), os.environ
    host, database = given.get("host") or given.get("hostaddr"), given.get("dbname")
    if service := given.get("service") or environ.get("PGSERVICE"):
        return f"{database or 'its database'} on {host or f'service {service}'}"
    host = host or environ.get("PGHOST") or environ.get("PGHOSTADDR") or "the default host"
    user = given.get("user") or environ.get("PGUSER")
    return f"{database or environ.get('PGDATABASE') or user or 'the default database'} on {host}"


def connection_parameters(conn: Connection[Any] | AsyncConnection[Any]) -> dict[str, str]:
    """Return the parameters that an open connection was made with, from the environment as well, with its password.

    psycopg's own `info.get_parameters` looks for a home directory, which fails for a user without a passwd entry.
    """
    return {one.keyword.decode(): one.val.decode() for one in conn.pgconn.info if one.val is not None}


def hide_secrets(dsn: str) -> str:
    """Return the string for people, without secrets. Raises InputError where it cannot be read."""
    secret = {
        one.keyword.decode() for one in pq.Conninfo.get_defaults() if one.dispchar == b"*"
    } | SECRETS_WITHOUT_VARIABLE
    given = parameters(dsn)
    return make_conninfo("", **{name: "***" if name in secret else value for name, value in given.items()})
