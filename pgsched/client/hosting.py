"""The part of the public App that runs a worker inside a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from pgsched.app.base import AppBase
from pgsched.app.declarations import duration
from pgsched.client.inside import InsideWorker, inside_settings
from pgsched.errors import PgschedError


class WorkerHost(AppBase):
    """An app that can run a worker inside its own program."""

    def worker(  # noqa: PLR0913
        self,
        *,
        concurrency: int = 8,
        queues: Sequence[str] = (),
        leader: bool = True,
        grace: float | timedelta = 25.0,
        kill_after_most: float | timedelta = 60.0,
        default_timeout: float | timedelta | None = None,
        lease: float | timedelta = 30.0,
        poll: float | timedelta = 1.0,
        allow: Sequence[str] = ("task",),
        http_allow: Sequence[str] = (),
        on_fatal: Callable[[PgschedError], object] | None = None,
    ) -> InsideWorker:
        """Return a worker for this program: `async with app.worker():`, or in a program without asyncio `with`.

        With `async with` the worker and its async handlers run on the program's event loop, plain handlers in
        threads. With `with`, or `start()`, it has an event loop of its own in a thread. It drains at the end of the
        block. It installs no signal handlers, and leaves logging and the environment alone. In a test with a recorder
        (pgsched.testing) it takes no run, and connects to nothing.

        `concurrency`: how many runs at the same time. `queues`: only these; none means all.
        `leader`: stand as leader candidate.
        `grace`: how long running handlers get at the end. A handler that does not stop then is given up after
          its `kill_after`, at most `kill_after_most`.
        `default_timeout`: how long an attempt may take if neither call, job nor task gives a timeout. Default:
          no limit.
        `lease`, `poll`: as of `pgsched worker`.
        `allow`: kinds to run: "task", "http", "sql". `http_allow`: where HTTP runs may go although it is not public.
        `on_fatal`: called with the error, in the worker's thread, if the worker ends by itself, or because an operator
          drained it. Without it the error is logged and kept in `worker.error`.

        Times are seconds or a timedelta. Raises InputError. Starting it raises PgschedError where the database cannot
        be reached or does not fit.
        """
        settings = inside_settings(
            allow, concurrency=concurrency, queues=(queues,) if isinstance(queues, str) else tuple(queues),
            leader=leader, grace_s=seconds("grace", grace),
            kill_after_most_s=seconds("kill_after_most", kill_after_most),
            default_timeout_s=None if default_timeout is None else seconds("default_timeout", default_timeout),
            lease_s=seconds("lease", lease), poll_s=seconds("poll", poll), http_allow=tuple(http_allow),
        )  # fmt: skip
        return InsideWorker(self, settings, on_fatal)


def seconds(name: str, value: float | timedelta) -> float:
    """Return a length of time in seconds. Raises InputError."""
    return float(duration(0)(name, value).total_seconds())
