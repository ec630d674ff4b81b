"""The path below which the console is reached, such as `/jobs` in front of every address.

Invariant: inside the console every path is its own, without the prefix. The guard takes the prefix off each request,
and puts it in front of each redirect; the templates put it in front of each link. No header decides about it:
`X-Forwarded-Prefix` may come from a browser.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.types import Scope

from pgsched.errors import InputError

PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def check_prefix(name: str, text: str) -> str:
    """Return a prefix without a slash at its end; empty for `/`. Raises InputError for other texts.

    `name`: the option in the error.
    """
    found = text.rstrip("/")
    if not PREFIX.fullmatch(found) or any(part.strip(".") == "" for part in found.split("/")[1:]):
        raise InputError(f'{name}: "{text}" is not a path such as /jobs, of letters, digits and . _ ~ -', name)
    return found


def split_path(scope: Scope, own: str) -> tuple[str, str] | None:
    """Return the prefix of a request as a browser sees it, and the path inside the console.

    None for a path that is not below the prefix.

    `own`: the prefix in the console's settings. An application that mounts the console gives its own in the scope.
    Servers differ in whether `path` includes the `root_path` of the server itself, so both are understood.
    """
    path, mounted = scope["path"], scope.get("root_path", "").rstrip("/")
    for start in (mounted, mounted.removeprefix(scope.get("app_root_path", "").rstrip("/"))):
        if path == start or path.startswith(f"{start}/"):
            path = path[len(start) :]
            break
    if own and path != own and not path.startswith(f"{own}/"):
        return None
    # A path that begins with two slashes would be another host.
    outside = quote(mounted + own).lstrip("/")
    return f"/{outside}" if outside else "", path[len(own) :] or "/"


def inner_scope(scope: Scope, path: str, state: dict[str, Any]) -> Scope:
    """Return the scope of a request with the path inside the console, and with these values in its state."""
    found = {name: value for name, value in scope.items() if name not in ("app_root_path", "router", "endpoint")}
    state = {**scope.get("state", {}), **state}
    return {**found, "path": path, "raw_path": quote(path).encode(), "root_path": "", "state": state}


def prefix_of(asked: HTTPConnection) -> str:
    """Return the prefix of a request; empty where the console is reached at the root."""
    return str(asked.scope.get("state", {}).get("prefix", ""))


def cookie_name(name: str, prefix: str) -> str:
    """Return the name of a cookie. Consoles of one host with different prefixes have cookies of different names."""
    return name + re.sub(r"[^A-Za-z0-9_-]+", ".", prefix)
