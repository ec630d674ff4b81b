"""Parse connection strings, and show them without secrets.

Invariant: no text that leaves this module contains a part of a password, whatever is wrong with the string.

libpq's own messages quote what they could not read, so they are never passed on. A part of a password that is not
escaped could be read as a host, port or database. Such a string is refused before connecting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.database_urls import other_product, split_url
from pgsched.db.connection.url_options import translate_options
from pgsched.errors import InputError

ESCAPES = "in a user or password write @ as %40, / as %2F, : as %3A, ? as %3F, % as %25 and a space as %20"
QUOTES = "a value with a space or a quote needs quotes: password='it\\'s secret'"
FORMS = "expected postgresql://user:password@host/database, or host=... dbname=... user=..."
UNHIDDEN = "str() of a URL of SQLAlchemy hides it; use url.render_as_string(hide_password=False)"
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
    """Return what the string sets, by libpq's names. Raises InputError."""
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
    """Return the string in the form that libpq reads; URLs may be as SQLAlchemy, Django and Heroku write them.

    Raises InputError for another product's URL, for an unescaped @, and for a password that SQLAlchemy has hidden.
    """
    url = split_url(dsn)
    if url is None:
        return dsn
    if product := other_product(dsn):
        raise InputError(f"dsn: it is of {product}: pgsched needs PostgreSQL: {FORMS}", "dsn")
    login, at, where = "", "", url.address
    if "@" in url.address.partition("/")[0]:
        login, at, where = url.address.partition("@")
    path, mark, query = where.partition("?")
    if "@" in path:
        raise unreadable_dsn_error(f"there is an @ after its host: {ESCAPES}")
    if login.endswith(":***"):
        raise unreadable_dsn_error(f"its password is ***: {UNHIDDEN}")
    options = translate_options(query, url.driver)
    return f"postgresql://{login}{at}{path}{mark if options else ''}{options}"


def unreadable_dsn_error(what: str) -> InputError:
    """Return the error for a string that cannot be read."""
    return InputError(f"dsn: it cannot be read as a connection string: {what}", "dsn")


def write_dsn(given: Mapping[str, Any]) -> str:
    """Return a connection string of these parameters. Those that libpq does not know are left out."""
    known = {one.keyword.decode() for one in pq.Conninfo.get_defaults()}
    return make_conninfo("", **{name: value for name, value in given.items() if name in known})


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
