"""Make one attempt of an HTTP run, against a server on loopback."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Outcome
from pgsched.execute.http.executor import HttpExecutor
from tests.support.executing import claim, execute

HERE = ["127.0.0.0/8"]


def http(url: str, args: Any = None, allow: list[str] = HERE, **more: Any) -> Outcome:
    """Make an attempt that may connect to the networks in `allow`; return its outcome."""
    return execute(HttpExecutor(allow, 4), claim("http", url, args, **more))
