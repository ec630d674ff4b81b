"""One trace covers the caller that enqueues, the attempts and the runs that they enqueue, across real processes.

The workers' spans come from a file that each process writes; the test's own from the SDK's exporter in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.apps import traced
from tests.support.fleet import Fleet
from tests.support.once import traced_by
from tests.support.paths import ROOT
from tests.support.waiting import wait_until
from tests.support.working import add

trace = pytest.importorskip("opentelemetry.trace")
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

pytestmark = pytest.mark.packages

Span = dict[str, Any]


@pytest.fixture
def mine() -> Iterator[InMemorySpanExporter]:
    """Yield the spans of this process."""
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    with traced_by(provider):
        yield found


class Traces:
    """The spans that a worker writes to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def all(self) -> list[Span]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [json.loads(line) for line in lines]

    def of_run(self, run_id: int, count: int = 1) -> list[Span]:
        """Return the spans of the run's attempts, in order, once there are `count` of them."""

        def found() -> list[Span]:
            spans = [s for s in self.all() if s["attributes"].get("messaging.message.id") == str(run_id)]
            return sorted(
                (s for s in spans if s["name"].startswith("process")), key=lambda s: s["attributes"]["pgsched.attempt"]
            )

        return wait_until(lambda: len(found()) >= count and found(), 30, f"the spans of run {run_id}") or []


@pytest.fixture
def traces(
    dsn: str, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: InMemorySpanExporter
) -> Iterator[Traces]:
    file = tmp_path / "spans"
    monkeypatch.setenv(traced.FILE, str(file))
    monkeypatch.setattr(traced.app, "dsn", dsn)
    fleet.start(
        1, "--app", "tests.support.apps.traced:app", "--allow", "task,command,shell,sql", "--poll", "0.2", "--json"
    )
    yield Traces(file)
    traced.app.close()


def result(db: psycopg.Connection, run_id: int) -> Any:
    def ended() -> tuple[Any, ...] | None:
        return db.execute(
            "SELECT state, result FROM pgsched.runs WHERE id = %s AND finished_at IS NOT NULL", [run_id]
        ).fetchone()

    found = wait_until(ended, 30, f"the end of run {run_id}")
    assert found is not None
    assert found[0] == "succeeded"
    return found[1]


def id_of(span: Span) -> str:
    return str(span["context"]["span_id"])


def trace_of(span: Span) -> str:
    return str(span["context"]["trace_id"]).removeprefix("0x")


def test_the_caller_the_attempt_and_its_children_are_one_trace(
    db: psycopg.Connection, traces: Traces, mine: InMemorySpanExporter
) -> None:
    with trace.get_tracer("shop").start_as_current_span("order") as order:
        run_id = traced.parent.enqueue()
    wanted = f"{order.get_span_context().trace_id:032x}"
    assert result(db, run_id) == wanted
    (attempt,) = traces.of_run(run_id)
    (sent,) = [span for span in mine.get_finished_spans() if span.name == "send default"]
    assert trace_of(attempt) == wanted
    assert attempt["parent_id"] == f"0x{sent.context.span_id:016x}"
    assert sent.parent is not None
    assert sent.parent.span_id == order.get_span_context().span_id
    child_id = db.execute("SELECT id FROM pgsched.runs WHERE task = 'child'").fetchone()[0]  # type: ignore[index]
    (child,) = traces.of_run(child_id)
    (its_send,) = [span for span in traces.all() if span["name"] == "send default"]
    assert child["parent_id"] == id_of(its_send)
    assert its_send["parent_id"] == id_of(attempt)
    assert trace_of(child) == wanted


@pytest.mark.long
def test_spans_follow_the_conventions_for_messaging(
    db: psycopg.Connection, traces: Traces, mine: InMemorySpanExporter
) -> None:
    run_id = traced.child.options(queue="mail").enqueue()
    (attempt,) = traces.of_run(run_id)
    (sent,) = mine.get_finished_spans()
    assert sent.kind is trace.SpanKind.PRODUCER
    assert sent.name == "send mail"
    assert dict(sent.attributes or {}) == {
        "messaging.system": "pgsched", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "mail", "messaging.message.id": str(run_id), "pgsched.task": "child",
    }  # fmt: skip
    assert attempt["kind"] == "SpanKind.CONSUMER"
    assert attempt["name"] == "process mail"
    client = attempt["attributes"].pop("messaging.client.id")
    assert client
    name = db.execute("SELECT pgsched.outside_name(id, created_at) FROM pgsched.runs WHERE id = %s", [run_id])
    assert (attempt["attributes"].pop("pgsched.outside_name"),) == name.fetchone()
    assert attempt["attributes"] == {
        "messaging.system": "pgsched", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "mail", "messaging.message.id": str(run_id), "pgsched.task": "child",
        "pgsched.kind": "task", "pgsched.attempt": 1, "pgsched.max_attempts": 3, "pgsched.outcome": "succeeded",
    }  # fmt: skip
    assert attempt["status"]["status_code"] == "UNSET"


@pytest.mark.long
def test_a_retry_is_in_the_same_trace_and_links_to_the_attempt_before(db: psycopg.Connection, traces: Traces) -> None:
    """This also holds if the enqueueing was not traced: then the first attempt begins the trace."""
    run_id = add_python(db, "fails_once")
    first, second = traces.of_run(run_id, 2)
    assert first["parent_id"] is None
    assert first["status"]["status_code"] == "ERROR"
    assert first["attributes"]["error.type"] == "ValueError"
    assert [event["name"] for event in first["events"]] == ["exception"]
    assert trace_of(second) == trace_of(first)
    assert [link["context"]["span_id"] for link in second["links"]] == [id_of(first)]
    assert result(db, run_id) == trace_of(first)


@pytest.mark.long
def test_each_run_made_by_sql_or_for_a_slot_begins_a_trace(db: psycopg.Connection, traces: Traces) -> None:
    one, other = add_python(db, "child"), add_python(db, "child")
    db.execute("INSERT INTO pgsched.jobs (name, task, run_at) VALUES ('soon', 'child', now())")
    slot = wait_until(
        lambda: db.execute("SELECT id, job_id FROM pgsched.runs WHERE job_id IS NOT NULL").fetchone(), 30, "the slot"
    )
    assert slot is not None
    spans = [traces.of_run(run_id)[0] for run_id in (one, other, slot[0])]
    assert len({trace_of(span) for span in spans}) == 3
    assert all(span["parent_id"] is None for span in spans)
    assert spans[2]["attributes"]["pgsched.job_id"] == slot[1]
    assert "pgsched.scheduled_at" in spans[2]["attributes"]


@pytest.mark.long
def test_a_child_process_is_in_the_trace(db: psycopg.Connection, traces: Traces) -> None:
    run_id = traced.in_process.enqueue()
    (attempt,) = traces.of_run(run_id)
    assert result(db, run_id) == trace_of(attempt)
    (inside,) = [span for span in traces.all() if span["name"] == "inside"]
    assert inside["parent_id"] == id_of(attempt)


@pytest.mark.long
def test_a_batch_links_to_each_of_its_runs(db: psycopg.Connection, traces: Traces, mine: InMemorySpanExporter) -> None:
    assert traced.gathers.enqueue_many([{}] * 2) == 2
    last = traced.gathers.enqueue()
    batch = result(db, last)
    (span,) = wait_until(lambda: [s for s in traces.all() if s["name"] == "process default"], 30, "its span") or []
    many, one = mine.get_finished_spans()
    sent = [f"0x{context.span_id:016x}" for context in (many.context, many.context, one.context)]
    assert sorted(link["context"]["span_id"] for link in span["links"]) == sorted(sent)
    assert span["attributes"]["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in span["attributes"]
    assert trace_of(span) == batch
    assert (many.attributes or {})["messaging.batch.message_count"] == 2


@pytest.mark.long
def test_keyed_runs_and_graphs_carry_the_trace(db: psycopg.Connection, traces: Traces) -> None:
    with trace.get_tracer("shop").start_as_current_span("order") as order:
        keyed = traced.child.options(unique_key="a", delay=timedelta(seconds=0.5)).enqueue()
        again = traced.child.options(unique_key="a").enqueue()
        ids = [*traced.graph(), keyed]
    assert again == keyed
    wanted = f"{order.get_span_context().trace_id:032x}"
    assert [result(db, run_id) for run_id in ids] == [wanted] * 3


def test_commands_and_statements_get_the_trace(db: psycopg.Connection, traces: Traces) -> None:
    shell = add(db, "shell", 'echo "$TRACEPARENT"')
    statement = add(db, "sql", "INSERT INTO public.said SELECT current_query()")
    db.execute("CREATE TABLE public.said (query text)")
    (of_shell,), (of_statement,) = traces.of_run(shell), traces.of_run(statement)
    for run_id in (shell, statement):  # a span ends before the output of its attempt is stored
        result(db, run_id)
    tail = db.execute("SELECT string_agg(chunk, '') FROM pgsched.run_logs WHERE run_id = %s", [shell]).fetchone()
    assert tail is not None
    assert f"00-{trace_of(of_shell)}-{id_of(of_shell).removeprefix('0x')}-0" in tail[0]
    said = db.execute("SELECT query FROM public.said").fetchone()
    assert said is not None
    assert f"/*traceparent='00-{trace_of(of_statement)}-" in said[0]


@pytest.mark.long
def test_log_lines_of_a_handler_name_run_attempt_and_trace(
    db: psycopg.Connection, fleet: Fleet, traces: Traces
) -> None:
    run_id = traced.child.enqueue()
    (attempt,) = traces.of_run(run_id)

    def lines() -> list[dict[str, Any]]:
        found = [line for line in fleet.members[0].log.read_text().splitlines() if "said by" in line]
        return [json.loads(line) for line in found]

    wait_until(lambda: len(lines()) == 2, 10, "its lines")
    for line in lines():
        assert (line["run"], line["attempt"], line["task"]) == (run_id, 1, "child")
        assert line["trace_id"] == trace_of(attempt)
        assert line["span_id"] == id_of(attempt).removeprefix("0x")


def add_python(db: psycopg.Connection, task: str) -> int:
    """Add a run by plain SQL."""
    row = db.execute(
        "INSERT INTO pgsched.runs (task, backoff, backoff_base, backoff_jitter)"
        " VALUES (%s, 'fixed', '10 milliseconds', 0) RETURNING id", [task],
    ).fetchone()  # fmt: skip
    assert row is not None
    return int(row[0])


@pytest.mark.long
def test_opentelemetry_and_prometheus_are_not_imported_by_default() -> None:
    code = (
        "import sys; from pgsched import App;"
        " import pgsched.worker.process, pgsched.execute.process_pool.child_main, pgsched.log;"
        " sys.exit(any(name.startswith(('opentelemetry', 'prometheus_client')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.long
def test_the_line_of_a_failed_attempt_names_its_trace(db: psycopg.Connection, fleet: Fleet, traces: Traces) -> None:
    run_id = add_python(db, "fails_once")
    first, _ = traces.of_run(run_id, 2)
    (line,) = [json.loads(line) for line in fleet.members[0].log.read_text().splitlines() if "attempt ended" in line]
    assert (line["run"], line["trace_id"]) == (run_id, trace_of(first))


@pytest.mark.long
def test_the_otel_flag_sets_up_the_sdk_from_its_environment(
    db: psycopg.Connection, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds in the worker and in its child processes."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    fleet.start(1, "--app", "tests.support.telemetry.logging_app:app", "--otel")
    db.execute("INSERT INTO pgsched.runs (task, args) VALUES ('in_process', '{\"word\": \"mine\"}')")
    member = fleet.members[0]
    wait_until(lambda: member.logged('"name": "process default"'), 30, "its span")
    assert member.logged('"service.name": "shop"')
    lines = [line for line in member.log.read_text().splitlines() if "mine warned" in line]
    assert "trace_id=" in lines[0]


@pytest.mark.long
def test_a_missing_exporter_gives_one_line(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nonsense")
    command = [sys.executable, "-m", "pgsched", "worker", "--dsn", dsn, "--otel"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert said.returncode == 2
    assert said.stderr.splitlines()[-1].startswith("error: otel: there is no exporter 'nonsense'")
