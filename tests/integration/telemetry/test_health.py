"""/healthz and /readyz of real workers, and an endpoint that slow clients cannot block."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pgsched.telemetry.endpoint import HEAD_BYTES, MOST_CONNECTIONS, Answer, Endpoint, address, listen
from pgsched.telemetry.liveness import Health, combine_children
from pgsched.worker.liveness import worker_health
from tests.support.fleet import Fleet
from tests.support.server import PrivateCluster
from tests.support.telemetry.scraping import answers, ask, free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram


@pytest.mark.long
def test_a_working_worker_is_ready_and_a_draining_worker_is_not(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    (worker,) = fleet.start(
        1, "--health", f"127.0.0.1:{port}", "--app", "tests.support.telemetry.counted:app", "--grace", "20"
    )
    assert answers(port, "/healthz", 200).text == "ok\n"
    assert answers(port, "/readyz", 200).text == "ok\n"
    assert ask(port, "/metrics").status == 404
    db.execute("INSERT INTO pgsched.runs (task, args) VALUES ('waits', '{\"seconds\": 3}')")
    wait_until(
        lambda: db.execute("SELECT count(*) FROM pgsched.runs WHERE state = 'running'").fetchone() == (1,),
        20,
        "its run",
    )
    worker.signal(signal.SIGTERM)
    assert answers(port, "/readyz", 503).text == "it drains: it takes no more runs\n"
    assert ask(port, "/healthz").status == 200
    assert worker.ended(40) == 0


def test_the_leader_names_the_problems_of_the_system_and_stays_ready(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    fleet.start(1, "--health", f"127.0.0.1:{port}", "--app", "tests.support.telemetry.counted:app")
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('default', 0)")
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('fine')")
    line = "system: limit 0 on queue default: nothing of it starts, 1 run waits"
    wait_until(lambda: line in answers(port, "/readyz", 200).text.splitlines(), 60, "the next look")
    assert answers(port, "/readyz", 200).text == f"ok\n{line}\n"
    assert ask(port, "/healthz").text == "ok\n"


@pytest.mark.long
def test_healthz_of_a_worker_whose_loop_is_blocked_names_the_handler(db: psycopg.Connection, fleet: Fleet) -> None:
    port = free_port()
    fleet.start(1, "--health", f"127.0.0.1:{port}", "--app", "tests.support.telemetry.counted:app")
    db.execute("INSERT INTO pgsched.runs (task, args) VALUES ('blocks', '{\"seconds\": 13}')")
    said = answers(port, "/healthz", 503).text
    assert said.startswith("the event loop has been blocked for 1")
    assert "blocks (run 1)" in said
    assert answers(port, "/healthz", 200)


@pytest.mark.long
def test_a_worker_without_its_database_is_alive_and_not_ready(
    private_cluster: PrivateCluster, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pgsched.db.schema.migrate import upgrade

    upgrade(private_cluster.dsn)
    monkeypatch.setattr(fleet, "dsn", private_cluster.dsn)
    port = free_port()
    fleet.start(1, "--health", f"127.0.0.1:{port}", "--lease", "2")
    answers(port, "/readyz", 200)
    private_cluster.stop("immediate")
    said = answers(port, "/readyz", 503).text
    assert said.startswith("the database has not answered a heartbeat for")
    assert ask(port, "/healthz").status == 200
    private_cluster.start()
    answers(port, "/readyz", 200)


def test_a_leader_process_has_probes(dsn: str, fleet: Fleet) -> None:
    port = free_port()
    command = [sys.executable, "-m", "pgsched", "leader", "--dsn", dsn, "--health", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command)
    try:
        assert answers(port, "/readyz", 200)
        assert ask(port, "/healthz").text == "ok\n"
    finally:
        process.terminate()
        code = process.wait(20)
    assert code == 0


@pytest.mark.long
def test_a_parent_of_several_workers_is_ready(fleet: Fleet) -> None:
    port = free_port()
    parent = fleet.launch("--health", f"127.0.0.1:{port}", "--processes", "2")
    answers(port, "/readyz", 200)
    assert ask(port, "/healthz").status == 200
    parent.signal(signal.SIGTERM)
    assert parent.ended(30) == 0


@pytest.mark.long
def test_health_needs_no_extra_package(dsn: str) -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'prometheus_client' else found(name, *more)\n"
        "from pgsched.cli import main; sys.argv[0] = 'pgsched'; main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, "worker", "--dsn", dsn, "--metrics", "127.0.0.1:0"], capture_output=True, text=True
    )
    assert said.returncode == 2
    assert "pip install 'pgsched[metrics]'" in said.stderr.splitlines()[-1]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "worker", "--dsn", dsn, "--health", f"127.0.0.1:{(port := free_port())}"]
    )
    try:
        answers(port, "/readyz", 200)
    finally:
        process.terminate()
        code = process.wait(30)
    assert code == 0


@pytest.mark.parametrize("stopping", [False, True])
def test_an_ended_heartbeat_is_unhealthy_unless_the_worker_stops(stopping: bool) -> None:
    worker: Any = SimpleNamespace(
        heartbeat=SimpleNamespace(is_alive=lambda: False, beaten_at=0.0),
        watchdog=SimpleNamespace(silent_s=lambda: 0.0),
        settings=SimpleNamespace(lease_s=30.0),
        stopping=stopping,
    )
    found = worker_health(worker)
    assert found == (Health([], ["it drains: it takes no more runs"]) if stopping else
                     Health(["its heartbeat has ended"], []))  # fmt: skip


def test_one_healthy_worker_is_enough_for_the_parent() -> None:
    fine, blocked, drains = Health([], []), Health(["blocked"], []), Health([], ["drains"])
    assert combine_children({"1": fine, "2": blocked}).answer("/healthz") == (200, b"ok\n")
    assert combine_children({"1": fine, "2": None}).answer("/readyz") == (200, b"ok\n")
    assert combine_children({"1": drains, "2": blocked}).answer("/readyz") == (503, b"process 1: drains\n")
    assert combine_children({"1": blocked, "2": None}).answer("/healthz") == (
        503, b"process 1: blocked\nprocess 2: it gives no answer\n",
    )  # fmt: skip
    assert combine_children({}).answer("/readyz")[0] == 503


# ---- the endpoint alone


@pytest.fixture
def endpoint() -> Iterator[int]:
    listening = listen("health", "127.0.0.1:0")
    made = Endpoint(listening, {"/fine": lambda accept: Answer(200, accept.encode()), "/wrong": lambda _: 1 / 0})  # type: ignore[arg-type, return-value]
    made.start()
    yield int(listening.getsockname()[1])
    made.close()


def test_the_endpoint_serves_known_paths_and_refuses_other_requests(endpoint: int) -> None:
    assert ask(endpoint, "/fine?x=1", headers={"Accept": "text/x"}) == (200, "text/x", "text/plain; charset=utf-8")
    assert ask(endpoint, "/fine", "HEAD").text == ""
    assert ask(endpoint, "/fine", "POST").status == 405
    assert ask(endpoint, "/else").status == 404
    assert ask(endpoint, "/wrong").status == 503
    assert raw(endpoint, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_request_that_is_too_long_is_cut_off(endpoint: int) -> None:
    assert raw(endpoint, b"GET /fine HTTP/1.1\r\nX: " + b"x" * 3 * HEAD_BYTES) == b""
    assert ask(endpoint, "/fine").status == 200


def test_slow_clients_block_the_endpoint_only_briefly(endpoint: int) -> None:
    """There are more slow connections than the endpoint serves; after a few seconds it has closed all of them."""
    held = [socket.create_connection(("127.0.0.1", endpoint)) for _ in range(MOST_CONNECTIONS + 5)]
    try:
        for one in held:
            one.sendall(b"GET /fi")
        answers(endpoint, "/fine", 200)
    finally:
        for one in held:
            one.close()


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        try:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            return link.recv(1000)
        except ConnectionError:
            return b""


@pytest.mark.parametrize(
    ("text", "found"),
    [(":9464", ("", 9464)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::]:9464", ("::", 9464)), ("host:0", ("host", 0))],
)
def test_addresses_are_parsed(text: str, found: tuple[str, int]) -> None:
    assert address("metrics", text) == found


def test_the_endpoint_listens_on_all_addresses_or_on_one() -> None:
    with listen("metrics", ":0") as everywhere:
        socket.create_connection(("127.0.0.1", everywhere.getsockname()[1]), timeout=5).close()
    with listen("metrics", "127.0.0.1:0") as here:
        assert here.getsockname()[0] == "127.0.0.1"
