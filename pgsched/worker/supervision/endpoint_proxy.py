"""The supervisor's endpoint: asks each worker through its socket file, and answers for all of them.

Invariant: a worker that does not answer in time delays no answer. It is left out of the metrics and named in the
health.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pgsched.errors import PgschedError
from pgsched.telemetry.endpoint import Answer
from pgsched.telemetry.liveness import Health, combine_children, from_json, starting_health
from pgsched.worker.process_endpoint import make_public_endpoints, require_client

ASK_S = 3.0
AT_ONCE = 16


class Member(NamedTuple):
    """A worker of the supervisor.

    - `name`: its place's number, with its pid added where another worker has the place.
    - `ready`: it has come to work.
    """

    name: str
    pid: int
    ready: bool


class EndpointProxy:
    """The combined endpoint of the workers that `members()` returns."""

    def __init__(self, folder: Path, members: Callable[[], list[Member]]) -> None:
        self._folder = folder
        self._members = members

    def metrics(self, accept: str) -> Answer:
        """Return the metrics of all workers, each sample with the label `process`."""
        from pgsched.telemetry.exposition import page

        answers = self._ask("/metrics")
        return Answer(200, *page({member.name: samples for member, samples in answers if samples is not None}, accept))

    def health(self) -> Health:
        """Return the health of all workers together."""
        answers = self._ask("/health")
        return combine_children({
            member.name: from_json(text) if text is not None else None if member.ready else starting_health()
            for member, text in answers
        })  # fmt: skip

    def _ask(self, path: str) -> list[tuple[Member, Any]]:
        members = self._members()
        with ThreadPoolExecutor(AT_ONCE, "pgsched-front") as pool:
            return list(zip(members, pool.map(lambda one: self._asked(one, path), members), strict=True))

    def _asked(self, member: Member, path: str) -> Any:
        link = Link(str(self._folder / f"{member.pid}.sock"))
        try:
            link.request("GET", path)
            return json.loads(link.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            link.close()


class Link(http.client.HTTPConnection):
    """An HTTP connection over a socket file."""

    def __init__(self, place: str) -> None:
        super().__init__("worker", timeout=ASK_S)
        self._place = place

    def connect(self) -> None:
        """Connect to the socket file."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._place)


@contextlib.contextmanager
def serve_endpoints(
    metrics: str | None, health: str | None, members: Callable[[], list[Member]]
) -> Iterator[str | None]:
    """Serve in this block; yield the folder for the workers' socket files, or None where nothing is asked for."""
    if metrics is None and health is None:
        yield None
        return
    if metrics is not None:
        require_client()
    try:
        folder = Path(tempfile.mkdtemp(prefix="pgsched-"))
    except OSError as error:
        raise PgschedError(
            "--metrics and --health under --processes need a directory for socket files, and none can be written to:"
            " mount one at /tmp, or set TMPDIR"
        ) from error
    try:
        front = EndpointProxy(folder, members)
        endpoints = make_public_endpoints(metrics, health, front.metrics, front.health)
        for endpoint in endpoints:
            endpoint.start()
        yield str(folder)
        for endpoint in endpoints:
            endpoint.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
