"""The rule: another process finds an app again by importing what the worker itself imported, and nothing else.

That is the worker's `--app`; for an app that was handed to the worker in code, the module and the name it is bound to.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from pgsched.errors import TaskError

importing = False  # is this a child process that is just importing its worker's app?


class Homed(Protocol):
    """An app, as much of it as is needed here."""

    path: str | None
    dsn: str | None


@dataclass(frozen=True, slots=True)
class Home:
    """What a child process needs to have the same app: its path, its database, and where modules are looked for."""

    path: str
    dsn: str | None
    search: tuple[str, ...]


def home(app: Homed | None) -> Home:
    """Where the app can be imported from. TaskError if nowhere."""
    path = None if app is None else app.path or bound(app)
    if app is None or path is None:
        raise TaskError(
            'run_in="process": a child process must import the app, but no module that can be imported holds it; '
            "bind it to a name of a module and start the worker with --app"
        )
    return Home(path, app.dsn, tuple(entry for entry in sys.path if isinstance(entry, str)))


def refuse_while_importing() -> None:
    """A module that starts a worker when it is imported would start one in each child, without end."""
    if importing:
        raise TaskError(
            "the app's module starts a worker when it is imported: put that under `if __name__ == '__main__':`"
        )


def bound(app: Any) -> str | None:
    """`module:name` of an app that some module holds."""
    from pgsched.app.naming import main_module

    for module_name, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                found = main_module() if module_name == "__main__" else module_name
                if found != "__main__":  # a prompt, or python -c
                    return f"{found}:{name}"
    return None
