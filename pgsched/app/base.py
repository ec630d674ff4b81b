"""The base class of the public App, for the packages below it; and how to load an app from `package.module:attribute`.

The public methods are those of `pgsched.App` (client/application.py), which stands above workers and services.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgsched.app.declarations import JobDeclaration, text
from pgsched.app.hooks import Hooks
from pgsched.config import find_dsn
from pgsched.db.enqueuer import Enqueuer
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.app.task import Task


class AppBase:
    """The tasks, jobs and hooks of a program, and the database that it enqueues into."""

    def __init__(self, name: str | None, dsn: str | None) -> None:
        self.name = "app" if name is None else text(100)("name", name)
        self.named = name is not None
        if dsn is not None and not dsn.strip():
            raise InputError("dsn: App was given an empty connection string: fill it in, or leave it out", "dsn")
        self.dsn = dsn
        self.path: str | None = None  # `package.module:attribute`, if `import_app` found the app
        self.tasks: dict[str, Task[..., Any]] = {}
        self.jobs: list[JobDeclaration] = []
        self.hooks = Hooks()
        self.database = Enqueuer(lambda: self.dsn or find_dsn(None))


def import_app(path: str) -> AppBase:
    """Import and return the App that `package.module:attribute` names; without an attribute, it is `app`.

    The current directory is importable, as it is for `python -m`. Raises InputError if the import fails or finds no
    App.
    """
    module_name, _, attribute = path.partition(":")
    attribute = attribute or "app"
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    found: Any = _import(module_name, path)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"app: module {module_name} has no attribute {attribute!r}", "app")
        found = getattr(found, part)
    if not isinstance(found, AppBase):
        raise InputError(f"app: {path} is of type {type(found).__name__}, not a pgsched.App", "app")
    found.path = path
    if not found.named:
        found.name = module_name if attribute == "app" else f"{module_name}:{attribute}"
    return found


def _import(module_name: str, path: str) -> Any:
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"app: {path!r} does not have the form package.module:app", "app")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise InputError(
                f"app: there is no module {missing!r} (looked in {Path.cwd()} and sys.path)", "app"
            ) from None
        raise import_error(module_name, error, str(error)) from error
    except SystemExit as error:
        raise import_error(module_name, error, f"it ended the program: sys.exit({error.code!r})") from error
    except Exception as error:
        raise import_error(module_name, error, f"{type(error).__name__}: {error}") from error


def import_error(module_name: str, error: BaseException, what: str) -> InputError:
    """Return an InputError that names the last place in the user's own code from which the error came."""
    ours = Path(__file__).parents[1]
    frames = [
        (Path(frame.f_code.co_filename), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<") and ours not in Path(frame.f_code.co_filename).parents
    ]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((Path(error.filename), error.lineno or 0))
    libraries = {Path(path) for kind in ("stdlib", "purelib", "platlib") if (path := sysconfig.get_path(kind))}
    own = [frame for frame in frames if libraries.isdisjoint(frame[0].parents)] or frames
    at = f"{shorten_path(own[-1][0])}:{own[-1][1]}: " if own else ""
    return InputError(f"app: importing {module_name} failed: {at}{what} (PGSCHED_LOG=debug shows the traceback)", "app")


def shorten_path(path: Path) -> str:
    """Return the path relative to the working directory if it lies below it, otherwise the path itself."""
    return str(path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path)
