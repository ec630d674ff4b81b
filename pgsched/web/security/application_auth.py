"""Visitors that the application around the console has let in, in place of the console's own login.

Invariant: what the application does not let in is refused. An answer of its function that is neither a name nor a
ConsoleUser lets nobody in.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import Scope

from pgsched.errors import InputError
from pgsched.web.security.secrets import Role

ROLES: dict[str, Role] = {"viewer": "read", "operator": "write"}


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """A person in the console. `name` stands in the audit. A viewer may only look; an operator may change things."""

    name: str
    role: Literal["viewer", "operator"] = "operator"

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InputError(f'role: "{self.role}" is not one of {", ".join(ROLES)}', "role")


Answer = str | ConsoleUser | None
Auth = Callable[[Request], Answer | Awaitable[Answer]]


async def ask_application(auth: Auth, scope: Scope) -> ConsoleUser | None:
    """Return the user that the application's function names; None: it refuses.

    The function gets the request as the application sees it, without its body. A plain function runs in a thread. Its
    exceptions pass.
    """
    request = Request(scope)
    found = auth(request) if inspect.iscoroutinefunction(auth) else await run_in_threadpool(auth, request)
    if inspect.isawaitable(found):
        found = await found
    if isinstance(found, str) and found:
        return ConsoleUser(found)
    return found if isinstance(found, ConsoleUser) and found.name else None
