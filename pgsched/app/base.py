"""The base class of the public App, for the packages below it; and how to load an app from `package.module:attribute`.

Most public methods are those of `pgsched.App` (client/application.py), which stands above workers and services.
"""

from __future__ import annotations

import ast
import importlib
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgsched.app.declarations import JobDeclaration, text
from pgsched.app.hooks import Hooks
from pgsched.app.naming import source_location
from pgsched.config import check_dsn, find_dsn, require
from pgsched.core.text import did_you_mean
from pgsched.db import enqueuer
from pgsched.db.run_waiter import RunWaiter
from pgsched.errors import InputError, PgschedError

if TYPE_CHECKING:
    from pgsched.app.run_handle import RunUseCases
    from pgsched.app.task import Task

HINT = " (PGSCHED_LOG=debug shows the traceback)"


class AppBase:
    """The tasks, jobs and hooks of a program, and the database that it enqueues into."""

    use_cases: RunUseCases  # given by the public App, which stands above the services

    def __init__(
        self, name: str, dsn: str | None, *, embedded: bool = False, pool_size: int = enqueuer.POOL_SIZE
    ) -> None:
        self.name: str = text(100)("name", name)
        if dsn is not None and embedded:
            raise InputError("embedded: not together with dsn, which names another server", "embedded")
        require("pool_size", pool_size, 1, 1000)
        self.dsn = None if dsn is None else check_dsn("App(dsn=...)", dsn)
        self.path: str | None = None  # `package.module:attribute`, if `import_app` found the app
        self.tasks: dict[str, Task[..., Any]] = {}
        self.declared_jobs: list[JobDeclaration] = []
        self.hooks = Hooks()
        self.database = enqueuer.Enqueuer(lambda: find_dsn(self.dsn), embedded=embedded, pool_size=pool_size)
        self.waiter = RunWaiter(self.database.dsn)

    def close(self) -> None:
        """Close the connections for enqueueing: of all threads, the running event loop, and loops that do not run.

        The connection for waiting is closed, too. The next call opens one again. A connection in use is closed when its
        call ends.
        """
        self.waiter.close()
        self.database.close()

    async def close_async(self) -> None:
        """Close the same connections as `close`."""
        self.waiter.close()
        await self.database.close_async()


def import_app(path: str) -> AppBase:
    """Import and return the App that `package.module:attribute` names; without an attribute, it is `app`.

    Raises InputError if the import fails or finds no App.
    """
    found = import_object(path)
    if not isinstance(found, AppBase):
        raise InputError(f"app: {path} is of type {type(found).__name__}, not a pgsched.App", "app")
    found.path = path
    return found


def import_object(path: str) -> Any:
    """Import and return what `package.module:attribute` names; without an attribute, it is `app`.

    The current directory is importable, as it is for `python -m`. Raises InputError if that fails or finds nothing.
    """
    module_name, _, attribute = path.partition(":")
    attribute = attribute or "app"
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    found: Any = _import(module_name, path)
    for part in attribute.split("."):
        if not hasattr(found, part):
            apps = [name for name, value in vars(sys.modules[module_name]).items() if isinstance(value, AppBase)]
            hint = did_you_mean(attribute, apps) or (f"; its app is {' or '.join(apps)}" if apps else "")
            raise InputError(f"app: module {module_name} has no attribute {attribute!r}{hint}", "app")
        found = getattr(found, part)
    return found


def import_apps(paths: Iterable[str]) -> list[AppBase]:
    """Import the Apps that `paths` name. Raises InputError where one cannot be imported, or two have the same names."""
    apps: list[AppBase] = []
    for path in paths:
        app = import_app(path)
        for other in apps:
            refuse_same_names(other, app)
        apps.append(app)
    return apps


def refuse_same_names(one: AppBase, other: AppBase) -> None:
    """Raise InputError where two apps of a worker have the same name, or tasks or jobs of the same name."""
    where = f"{one.path} and {other.path}"
    if one is other or one.name == other.name:
        what = (
            "the same app"
            if one is other
            else f"apps of the same name, {one.name!r}, which would remove each other's jobs"
        )
        raise InputError(f"app: {where} are {what}: leave one out, or rename it", "app")
    if name := next((name for name in one.tasks if name in other.tasks), None):
        places = [f"{app.path} ({source_location(app.tasks[name].function)})" for app in (one, other)]
        raise InputError(f"app: task {name} is in {places[0]} and in {places[1]}: give one of them another name", "app")
    if name := next(
        (job.name for job in one.declared_jobs if job.name in {mine.name for mine in other.declared_jobs}), None
    ):
        raise InputError(f"app: job {name} is declared in {where}: give one of them another name", "app")


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
    """Return an InputError that names the last place in the user's own code from which the error came.

    If that place declares a job or a task, its name is given as well.
    """
    own = own_frames(error)
    place = ""
    if own:
        place = f"{shorten_path(own[-1].path)}:{own[-1].line}: "
        if isinstance(error, PgschedError):
            what = str(error)
            if not what.startswith(("task ", "job ")):
                place += describe_declaration(own[-1])
    return InputError(f"app: importing {module_name} failed: {place}{what}{HINT}", "app")


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in the user's own code. `module`: the module's name, as its tasks have it."""

    path: Path
    line: int
    module: str


def own_frames(error: BaseException) -> list[Frame]:
    """Return the frames of a traceback that are in neither pgsched nor Python nor an installed package, if any are."""
    ours = Path(__file__).parents[1]
    frames = [
        Frame(path, line, str(frame.f_globals.get("__name__", "")))
        for frame, line in traceback.walk_tb(error.__traceback__)
        for path in [Path(frame.f_code.co_filename)]
        if not frame.f_code.co_filename.startswith("<") and ours not in path.parents
    ]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(Frame(Path(error.filename), error.lineno or 0, ""))
    libraries = {Path(path) for kind in ("stdlib", "purelib", "platlib") if (path := sysconfig.get_path(kind))}
    return [frame for frame in frames if libraries.isdisjoint(frame.path.parents)] or frames


def describe_declaration(frame: Frame) -> str:
    """Return `job nightly: ` or `task shop.report: ` if the line is in a decorator that declares one, otherwise ""."""
    try:
        tree = ast.parse(frame.path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names: dict[str, str] = {}  # the names that the decorators give to the task and to the job
        kind = ""
        for decorator in node.decorator_list:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not isinstance(call, ast.Attribute) or call.attr not in ("job", "task"):
                continue
            if decorator.lineno <= frame.line <= (decorator.end_lineno or 0):
                kind = call.attr
            for keyword in decorator.keywords if isinstance(decorator, ast.Call) else []:
                if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                    names[call.attr] = str(keyword.value.value)
        if kind:
            task = names.get("task", f"{frame.module}.{node.name}".lstrip("."))
            return f"{kind} {task if kind == 'task' else names.get('job', task)}: "
    return ""


def shorten_path(path: Path) -> str:
    """Return the path relative to the working directory if it lies below it, otherwise the path itself."""
    return str(path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path)
