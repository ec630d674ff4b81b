"""The HTTP endpoints of one process: its metrics, and whether it is alive and ready.

Invariant: nothing is opened or counted unless it was asked for.

Under a supervisor the process listens on a socket file. The supervisor has the port, and asks each process for its
part.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pgsched
from pgsched.config import Settings, find_backlog_limits
from pgsched.errors import InputError
from pgsched.leader.election import Leader
from pgsched.leader.metrics import LeaderMeter
from pgsched.telemetry.endpoint import Answer, Endpoint, Route, address, listen
from pgsched.telemetry.liveness import Health, as_json, starting_health
from pgsched.telemetry.metrics import Labels, Meter, Sample
from pgsched.worker.liveness import leader_health, worker_health
from pgsched.worker.observers.metrics import WorkerMeter, samples_of
from pgsched.worker.worker import Worker

if TYPE_CHECKING:
    from pgsched.telemetry.database_metrics import Figures
    from pgsched.telemetry.system_health import SystemHealth

FOLDER = "PGSCHED_ENDPOINTS"  # where supervised workers have their socket files
FLAGS = ("pgsched_worker_draining",)


class ProcessEndpoints:
    """The endpoints of one process, open inside a `with` block."""

    def __init__(self, settings: Settings, *, under_supervisor: bool = False) -> None:
        """Listen at once. Raises InputError where that fails, or where prometheus_client is missing."""
        mine = settings.worker
        self._workers: Sequence[Worker] = ()
        self._leader: Leader | None = None
        self._figures: Figures | None = None
        self._system: SystemHealth | None = None
        self._is_enabled = mine.metrics is not None or mine.health is not None
        find_backlog_limits()  # check the value now, and not at the first look at the system's health
        self.meter: Meter | None = None
        self.worker_meter: WorkerMeter | None = None
        if mine.metrics is not None:
            require_client()
            self.meter = Meter()
            self.worker_meter = WorkerMeter(self.meter)
            self.meter.sources += [self._about, self.worker_meter.samples]
        self._dsn = settings.dsn
        if under_supervisor:
            self._endpoints = self._inner() if self._is_enabled else []
        else:
            self._endpoints = make_public_endpoints(mine.metrics, mine.health, self._metrics, self.health)

    def watch(self, workers: Sequence[Worker], leader: Leader) -> None:
        """Report these workers and this leader from now on."""
        self._workers, self._leader = workers, leader
        if not self._is_enabled:
            return
        # imported only where needed: these two add a fifth to the import time of the whole process
        from pgsched.telemetry.database_metrics import Figures
        from pgsched.telemetry.system_health import SystemHealth

        def leads() -> bool:
            return leader.term is not None

        system = self._system = SystemHealth(leads)
        leader.on_no_leader = system.look
        self._figures = Figures(self._dsn, leads, system, counted=self.meter is not None)
        if self.meter is not None:
            leader.meter = LeaderMeter(self.meter)
            self.meter.sources += [leader.meter.samples, self._figures.samples, system.samples]
            if workers:
                self.meter.sources.append(partial(sum_samples, [partial(samples_of, one.runner) for one in workers]))
        self._figures.start()

    def health(self) -> Health:
        """Return the health of the process now."""
        if self._workers:
            each = [worker_health(worker) for worker in self._workers]
            found = Health([why for one in each for why in one.alive], [why for one in each for why in one.ready])
        else:
            found = starting_health() if self._leader is None else leader_health(self._leader)
        return found if self._system is None else replace(found, system=self._system.lines())

    def __enter__(self) -> ProcessEndpoints:
        for endpoint in self._endpoints:
            endpoint.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._figures is not None:
            self._figures.stop()
        for endpoint in self._endpoints:
            endpoint.close()

    def _metrics(self, accept: str) -> Answer:
        from pgsched.telemetry.exposition import page

        assert self.meter is not None
        return Answer(200, *page({"": self.meter.snapshot()}, accept))

    def _about(self) -> Iterator[Sample]:
        yield "pgsched_build_info", (pgsched.__version__, platform.python_version()), 1
        beaten = [worker.heartbeat.beaten_at for worker in self._workers if worker.heartbeat is not None]
        if beaten:
            yield "pgsched_heartbeat_age_seconds", (), time.monotonic() - min(beaten)

    def _inner(self) -> list[Endpoint]:
        """Return the endpoint on a socket file, for the supervisor only."""
        place = Path(os.environ[FOLDER], f"{os.getpid()}.sock")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(place))
        listening.listen(16)
        routes: dict[str, Route] = {"/health": lambda _: Answer(200, as_json(self.health()), "application/json")}
        if self.meter is not None:
            meter = self.meter
            routes["/metrics"] = lambda _: Answer(200, json.dumps(meter.snapshot()).encode(), "application/json")
        return [Endpoint(listening, routes)]


def sum_samples(sources: Iterable[Callable[[], Iterable[Sample]]]) -> Iterator[Sample]:
    """Yield the samples of several workers of this process, those of the same name and labels added up.

    Of those that are 0 or 1 the highest one counts.
    """
    sums: dict[tuple[str, Labels], Any] = {}
    for source in sources:
        for name, labels, value in source():
            before = sums.get((name, labels), 0)
            sums[name, labels] = max(before, value) if name in FLAGS else before + value
    yield from ((name, labels, value) for (name, labels), value in sums.items())


def require_client() -> None:
    """Raise InputError where prometheus_client is missing."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise InputError(
            "metrics: needs the package prometheus-client: pip install 'pgsched[metrics]'; --health needs none",
            "metrics",
        )


def make_public_endpoints(
    metrics: str | None, health: str | None, metrics_route: Route, read_health: Callable[[], Health]
) -> list[Endpoint]:
    """Return the endpoints for the outside: metrics with health beside them, and health alone at its own address.

    `read_health`: returns the health of the process now.
    """

    def probe(path: str) -> Route:
        return lambda _: Answer(*read_health().answer(path))

    probes: dict[str, Route] = {path: probe(path) for path in ("/healthz", "/readyz")}
    same = metrics is not None and health is not None and address("metrics", metrics) == address("health", health)
    endpoints = []
    if metrics is not None:
        endpoints.append(Endpoint(listen("metrics", metrics), {"/metrics": metrics_route, **probes}))
    if health is not None and not same:
        endpoints.append(Endpoint(listen("health", health), probes))
    return endpoints
