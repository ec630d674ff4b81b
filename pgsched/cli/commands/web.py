"""`pgsched web`: serve the console in a browser."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pgsched.cli.common import Dsn, migrated_database
from pgsched.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("web")(web)


def web(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that lets people in, or a name and a token on each line. Or PGSCHED_WEB_TOKEN."
        ),
    ] = None,
    reader_token_file: Annotated[
        Path | None, typer.Option(help="The same, for people who may only look. Or PGSCHED_WEB_READER_TOKEN.")
    ] = None,
    producer_token_file: Annotated[
        Path | None,
        typer.Option(help="The same, for programs that only make and read runs. Or PGSCHED_WEB_PRODUCER_TOKEN."),
    ] = None,
    password_hash: Annotated[
        str | None, typer.Option(help="What --hash-password printed. Or PGSCHED_WEB_PASSWORD_HASH.")
    ] = None,
    trusted_proxy_header: Annotated[
        str | None, typer.Option(metavar="NAME", help="Header in which a proxy gives the user's name.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(metavar="CIDR", help="Where that proxy connects from (repeatable).")
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Host name that it answers to (repeatable).")
    ] = None,
    root_path: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Path below which it is reached, such as /jobs. A proxy leaves it in place."),
    ] = None,
    https: Annotated[
        bool, typer.Option("--https", help="People come over https, which a proxy ends: cookies are for that alone.")
    ] = False,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Every user of this machine may do everything: no token is made.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="No visitor can change anything.")] = False,
    hash_password: Annotated[
        bool,
        typer.Option("--hash-password", help="Read a password, print its hash, and end."),
    ] = False,
    dsn: Dsn = None,
) -> None:
    """Serve the console: pages and a JSON API (/api/openapi.json).

    Without a token, password or proxy it listens on this machine alone, makes a token, and prints the address with it.

    \b
    Example:
      pgsched web --port 8080
    """
    require_web_libraries()
    from pgsched.db.connection.connect import connect
    from pgsched.db.schema import version
    from pgsched.web import serving, settings
    from pgsched.web.security import keys, secrets

    if hash_password:
        typer.echo(secrets.hash_password(read_new_password()))
        return
    env = os.environ
    given = password_hash or env.get("PGSCHED_WEB_PASSWORD_HASH")
    token, named = settings.parse_tokens(settings.read_secret("token", token_file, env, "PGSCHED_WEB_TOKEN"))
    producer, producers = settings.parse_tokens(
        settings.read_secret("producer token", producer_token_file, env, "PGSCHED_WEB_PRODUCER_TOKEN")
    )
    wanted = settings.Settings(
        "", host, port,
        token=token, named_tokens=named,
        reader_token=settings.read_secret("reader token", reader_token_file, env, "PGSCHED_WEB_READER_TOKEN"),
        password=secrets.parse_hash(given) if given else None,
        proxy_header=trusted_proxy_header, proxies=settings.parse_networks(trusted_proxy or []),
        read_only=read_only, https=https, hosts=tuple(name.lower() for name in allowed_host or ()),
        producer_tokens=(("", producer),) if producer else producers, root_path=root_path or "",
    )  # fmt: skip
    if no_auth and wanted.authenticates:
        raise InputError("no auth: --no-auth contradicts a token, a password or a proxy", "no auth")
    home = keys.state_folder()
    role: secrets.Role = "read" if read_only else "write"
    lets_people_in = no_auth or wanted.has_login or wanted.proxy_header is not None
    token = None if lets_people_in else secrets.Signer(keys.key_of(home)).token(role)
    wanted = replace(wanted, home=home, token=token or wanted.token)
    with migrated_database(dsn) as address:
        with connect(address) as conn:
            version.check_version(conn)
        way = f"login?token={token}" if token else ""
        serving.serve_console(wanted, address, lambda url: typer.echo(f"pgsched web: {url}{way}", err=True))


def read_new_password() -> str:
    """Read a new password: asked for twice on a terminal, else the first line of standard input.

    Raises InputError for an empty one in standard input.
    """
    if sys.stdin.isatty():
        return str(typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True))
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise InputError("password: standard input has none: pipe it, or run this on a terminal", "password")
    return password


def require_web_libraries() -> None:
    """Raise InputError, with the command that installs them, where libraries of the console are missing."""
    import importlib.util

    missing = [name for name in ("starlette", "uvicorn", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"the console needs {', '.join(missing)}: pip install 'pgsched[web]'")
