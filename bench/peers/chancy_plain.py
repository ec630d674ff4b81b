"""Chancy with a plain function, by its `ThreadedExecutor`.

Queue concurrency is 100, which is also the number of threads. Everything else is as in `chancy.py`.
"""

from __future__ import annotations

from chancy import Chancy

from bench.peers import chancy_task
from bench.peers.chancy import ChancyAdapter
from bench.peers.verbs import main


class ChancyPlain(ChancyAdapter):
    """Chancy, each job in a thread of its pool."""

    executor = Chancy.Executor.Threaded
    concurrency = 100
    function = staticmethod(chancy_task.plain)


if __name__ == "__main__":
    main(ChancyPlain())
