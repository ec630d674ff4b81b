"""Ask the HTTP endpoint of a worker."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.support.waiting import wait_until


class Answered(NamedTuple):
    """The answer of an endpoint."""

    status: int
    text: str
    kind: str


def free_port() -> int:
    """Return a port of loopback on which no program listens."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def ask(port: int, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Answered:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        link.request(method, path, headers=dict(headers or {}))
        found = link.getresponse()
        return Answered(found.status, found.read().decode(), found.getheader("Content-Type") or "")
    finally:
        link.close()


def answers(port: int, path: str, status: int) -> Answered:
    """Wait until the endpoint answers with this status; return the answer."""

    def found() -> Answered | None:
        try:
            got = ask(port, path)
        except OSError:
            return None
        return got if got.status == status else None

    answer = wait_until(found, 30, f"{status} of {path}")
    assert answer is not None
    return answer


class Scrape:
    """One parsed scrape of /metrics."""

    def __init__(self, port: int) -> None:
        parser = pytest.importorskip("prometheus_client.parser")
        self.text = ask(port, "/metrics").text
        self.families = {family.name: family for family in parser.text_string_to_metric_families(self.text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have this name and these labels."""
        return sum(self.values(name, **labels))

    def values(self, name: str, **labels: str) -> list[Any]:
        return [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
