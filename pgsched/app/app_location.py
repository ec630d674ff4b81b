"""Find where a child process can import the worker's app from.

Invariant: a child process imports only what the worker itself imported. That is the worker's `--app`. For an app that
was given to the worker in code, it is the module and the name that the app is bound to.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from pgsched.errors import TaskError

importing = False  # True while a child process imports its worker's app


class LocatedApp(Protocol):
    """The attributes of an app that this module uses."""

    path: str | None
    dsn: str | None


@dataclass(frozen=True, slots=True)
class AppLocation:
    """What a child process needs to have the same app.

    `path`: `module:name` of the app.
    `dsn`: the app's database.
    `search`: the module search path.
    """

    path: str
    dsn: str | None
    search: tuple[str, ...]


def locate_app(app: LocatedApp | None) -> AppLocation:
    """Return where the app can be imported from. Raises TaskError if no importable module holds it."""
    path = None if app is None else app.path or find_name_of(app)
    if app is None or path is None:
        raise TaskError(
            'run_in="process": a child process must import the app, but no module that can be imported holds it; '
            "bind it to a name of a module and start the worker with --app"
        )
    return AppLocation(path, app.dsn, tuple(entry for entry in sys.path if isinstance(entry, str)))


def refuse_while_importing() -> None:
    """Raise TaskError if a child process is importing its worker's app.

    A module that starts a worker when it is imported would start one in each child, without end.
    """
    if importing:
        raise TaskError(
            "the app's module starts a worker when it is imported: put that under `if __name__ == '__main__':`"
        )


def find_name_of(app: Any) -> str | None:
    """Return `module:name` of the app if a module holds it, otherwise None."""
    from pgsched.app.naming import main_module

    for module_name, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                found = main_module() if module_name == "__main__" else module_name
                if found != "__main__":  # __main__ cannot be imported from a prompt or from python -c
                    return f"{found}:{name}"
    return None
