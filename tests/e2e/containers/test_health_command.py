"""`pgsched health`: a health check for a container without curl."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pgsched.telemetry.endpoint import Answer, Endpoint, listen
from tests.support.cli.said import Said

Program = Callable[..., Said]


@pytest.fixture
def worker() -> Iterator[str]:
    """The address of the endpoint of a worker that is alive but drains."""
    listening = listen("health", "127.0.0.1:0")
    endpoint = Endpoint(
        listening,
        {"/healthz": lambda _: Answer(200, b"alive\n"), "/readyz": lambda _: Answer(503, b"it drains\x1b[2J\n")},
    )
    endpoint.start()
    yield f":{listening.getsockname()[1]}"
    endpoint.close()


def test_health_prints_the_answer_of_the_endpoint(worker: str, process: Program) -> None:
    alive = process("health", worker)
    assert (alive.code, alive.out, alive.err) == (0, "alive\n", "")
    drains = process("health", worker, "--ready")
    assert (drains.code, drains.out, drains.err) == (1, "", "it drains\\x1b[2J\n")


def test_health_fails_without_an_answer(process: Program) -> None:
    nobody = process("health", "127.0.0.1:1")
    assert nobody.code == 1 and "no answer from 127.0.0.1:1/healthz" in nobody.err
    assert process("health", "nonsense").code == 2
