"""The public `App`: register tasks, declare jobs, enqueue graphs and batches, and add hooks.

Invariant: a process runs only the tasks of its App; a name in a row is looked up there and nowhere else.

A task's name is `module.qualname` unless one is given. The module that was started as a program has the name by which
it would be imported. So the program that enqueues and the worker that imports the module use the same name.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from pgsched.app import arguments
from pgsched.app.batch_item import Item
from pgsched.app.declarations import JobDeclaration, JobKeywords, check_policies, text
from pgsched.app.graph import Graph
from pgsched.app.hooks import Hook
from pgsched.app.naming import source_location, task_name
from pgsched.app.options import INHERITED, Options, Parent, TaskKeywords
from pgsched.app.request import Request
from pgsched.app.run import Run
from pgsched.app.run_batch import Batch
from pgsched.app.task import Task
from pgsched.client.coordination import Coordination
from pgsched.client.hosting import WorkerHost
from pgsched.client.run_methods import RunMethods
from pgsched.core.policies import apply_preset
from pgsched.db.queries.runs.dependencies import RunCounts
from pgsched.errors import InputError, TaskError

if TYPE_CHECKING:
    from pgsched.client.job_handles import Jobs
    from pgsched.db.callers.connection_types import AsyncConn, SyncConn

P = ParamSpec("P")
R = TypeVar("R")
HANDLING = (
    "name", "run_in", "memory_mb", "no_retry", "retry_on", "concurrency", "rate", "capture", "batch", "batch_wait",
    "extra",
)  # fmt: skip


class Register(Protocol):
    """The decorator that `@app.task(...)` and `@app.job(...)` return, for functions and tasks."""

    @overload
    def __call__(self, function: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Run, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class App(RunMethods, WorkerHost, Coordination):
    """The tasks and jobs of a program, and the database that it enqueues into.

    `name`: owns the jobs that the code declares: an app adds, changes and removes only jobs of its own name.
    `dsn`: the database. Without it, PGSCHED_DSN, DATABASE_URL or libpq's PGHOST and others name it.
    `embedded`: where nothing names a database, start (or join) the embedded PostgreSQL, as `pgsched worker` does.
    `pool_size`: how many connections the threads of this process share for enqueueing; as many for each event loop.

    Raises InputError for a DSN that is empty, or of another product than PostgreSQL.
    """

    def __init__(self, name: str, *, dsn: str | None = None, embedded: bool = False, pool_size: int = 4) -> None:
        super().__init__(name, dsn, embedded=embedded, pool_size=pool_size)

    @property
    def jobs(self) -> Jobs:
        """The jobs of the database: `app.jobs["nightly"]` is the handle of one."""
        from pgsched.client.job_handles import Jobs  # takes a third of the time of importing the rest

        return Jobs(self)

    @overload
    def task(self, function: Callable[Concatenate[Run, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskKeywords]) -> Register: ...
    @overload
    def task(
        self, /, *, batch: int, batch_wait: float | None = None, **options: Any
    ) -> Callable[[Callable[[list[Item]], Any]], Task[..., Any]]: ...
    def task(  # noqa: PLR0913
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        run_in: str | None = None,
        memory_mb: int | None = None,
        no_retry: type[BaseException] | tuple[type[BaseException], ...] = (),
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        capture: bool = False,
        batch: int | None = None,
        batch_wait: float | None = None,
        extra: str = "forbid",
        **options: Any,
    ) -> Any:
        """Register a function, sync or async, as a task.

        The `options` are those of an enqueue (see `Options`), for each run that does not set its own. `unique_key` is a
        template of arguments here. `backoff` may be a function of the attempt's number and its exception, which returns
        the wait in seconds or as a timedelta.

        `name`: the task's name; by default `module.qualname`.
        `run_in`: "loop" (the default of async functions), "thread" (of all others), or "process": a child process,
          which can be killed.
        `memory_mb`: how many MB an attempt in a child process may use.
        `no_retry`: exceptions after which the run is dead at once, as after `Discard`.
        `retry_on`: the only exceptions after which the run is tried again.
        `concurrency`, `rate`: how many runs may be at work, and how many may start: `rate="100/m"`. With
          `concurrency_key` the limit holds for each key by itself.
        `capture`: keep what the handler prints and logs, for `pgsched run logs`.
        `batch`: one call of the handler gets up to this many runs, as a list of `Item`. Each run is settled by itself.
        `batch_wait`: how many seconds the call waits for these runs (0.1).
        `extra`: "ignore" drops arguments that the function has no parameter for, as a newer release may send them.

        Raises InputError or TaskError for a wrong option or function, or a second task of the same name.
        """
        function_of_backoff = options.pop("backoff") if callable(options.get("backoff")) else None
        defaults = Options.named(options, *HANDLING)
        handling = (run_in, memory_mb, no_retry, capture, batch, batch_wait, extra, retry_on, function_of_backoff,
                    concurrency, rate)  # fmt: skip
        if function is not None:
            return self._register(function, name, defaults, *handling)
        return lambda function: self._register(function, name, defaults, *handling)

    def job(
        self,
        *,
        schedule: str,
        timezone: str = "UTC",
        name: str | None = None,
        args: Any = None,
        like: Literal["cron", "kubernetes", "temporal", "celery"] | None = None,
        **policies: Unpack[JobKeywords],
    ) -> Register:
        """Declare a job next to its code; a worker makes its row when it starts. May stand above `@app.task`.

        `schedule`: a cron expression, or `@every 90s` and others, read in the IANA zone `timezone`.
        `name`: the job's name; by default the task's.
        `args`: a dict of arguments by name, or a list of arguments by position.
        `like`: the policies that a job of another product has; those that you write beside it win.
        `policies`: columns of `jobs`; durations are seconds, a timedelta or a text such as `1h 30m`.

        Raises InputError (ScheduleError for the schedule) or TaskError for a wrong declaration.
        """
        from pgsched.core.schedule.cron import parse

        parse(schedule, timezone)
        columns = check_policies(apply_preset(like, {**policies}))

        def declare(function: Any) -> Any:
            task = function if isinstance(function, Task) else self._register(function, None, Options())
            job_name = text(200)("name", name or task.name)
            if job_name in columns.get("after_jobs", ()):
                raise InputError("after_jobs: a job cannot wait for itself", "after_jobs")
            if any(job.name == job_name for job in self.declared_jobs):
                raise TaskError(f"job {job_name}: declared twice; give each its own name")
            given = json.loads(_job_args(task, {} if args is None else args))
            # the key of a task with a limit is the task's, which decides when the run is made
            names = [key for key in INHERITED if task.limit is None or key != "concurrency_key"]
            inherited = check_policies({key: getattr(task.defaults, key) for key in names})
            self.declared_jobs.append(
                JobDeclaration(job_name, task.name, schedule, timezone, given, {**inherited, **columns})
            )
            return task

        return declare

    def graph(self, *, connection: SyncConn | AsyncConn | None = None) -> Graph:
        """Return an empty graph of runs that wait for each other: `with app.graph() as g: a = g.add(task); ...`.

        All its runs are made in one transaction; with `connection`, in your own one.
        """
        return Graph(self, connection)

    def batch(
        self,
        callback: Task[..., Any] | Request[..., Any] | None = None,
        args: Mapping[str, Any] | None = None,
        *,
        on_failure: Literal["cancel", "run_anyway", "wait"] = "run_anyway",
        connection: SyncConn | AsyncConn | None = None,
    ) -> Batch:
        """Return an empty batch of runs, with `counts()`; when all of them have ended, `callback` runs with `args`.

        `on_failure`: what the callback does when a run does not succeed: "run_anyway", "cancel" or "wait". Its handler
        finds the runs by `run.parents()`. `connection`: make the runs in your own transaction.
        """
        return Batch(self, callback, args, on_failure, connection)

    def counts(self, runs: Iterable[Parent]) -> RunCounts:
        """Return how many of these runs have ended, and how many of these did not succeed.

        `runs`: runs or their ids, such as the `batch.ids` that another process stored.
        """
        return self.graph().known(runs).counts()

    async def counts_async(self, runs: Iterable[Parent]) -> RunCounts:
        """Return the same as `counts`, without blocking the event loop."""
        return await self.graph().known(runs).counts_async()

    def on_start(self, hook: Hook) -> Hook:
        """Call this function, plain or async, once in each process that runs handlers, before the first one.

        If the function raises, the process does not start.
        """
        return self.hooks.add("on_start", hook)

    def on_shutdown(self, hook: Hook) -> Hook:
        """Call this function, plain or async, when a process that runs handlers ends, unless it is killed.

        The function that was registered last is called first.
        """
        return self.hooks.add("on_shutdown", hook)

    def middleware(self, hook: Hook) -> Hook:
        """Put `async def around(run, call_next)` around every handler: `return await call_next()` runs the handler.

        A plain function goes around plain handlers only, in their thread. The first one registered is the outermost.
        """
        return self.hooks.add("middleware", hook)

    def on_error(self, hook: Hook) -> Hook:
        """Call `hook(run, error)` after each attempt that failed, timed out (`TimedOut`) or crashed (`Crashed`)."""
        return self.hooks.add("on_error", hook)

    def _register(self, function: Any, name: str | None, defaults: Options, *handling: Any) -> Task[..., Any]:
        if isinstance(function, Task):
            raise TaskError(f"task {function.name}: it is registered already; @app.job stands above @app.task")
        if not callable(function) or inspect.isclass(function):
            raise TaskError(f"task {name or function!r}: expected a function, got {type(function).__name__}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TaskError(f"task {name or function.__qualname__}: a generator gives no result; return a list instead")
        task: Task[..., Any] = Task(self, function, name or task_name(function), defaults, *handling)
        known = self.tasks.get(task.name)
        if known is not None:
            places = f"{source_location(known.function)} and {source_location(function)}"
            raise TaskError(f"task {task.name}: registered twice, from {places}")
        self.tasks[task.name] = task
        return task


def _job_args(task: Task[..., Any], args: Any) -> str:
    if not isinstance(args, (dict, list, tuple)):
        raise TaskError(f"task {task.name}: args: expected a dict or a list, got {type(args).__name__}")
    positional, named = ((), args) if isinstance(args, dict) else (tuple(args), {})
    return arguments.encode(task.parameters, positional, named)
