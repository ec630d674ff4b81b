"""`console`: how long each page of the console takes on the server, and `pgsched status`, with a long history.

Invariant: a page is requested as a browser does it, from a running `pgsched web`. Its time is what the console reports
in `Server-Timing`, from the request to the finished answer. Jobs, runs and days change from one request to the next, so
no page is requested twice in a row.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle

import psycopg

from bench.adapter import ROOT, call
from bench.contestants import PGSCHED
from bench.measures.console_rows import JOBS, fill
from bench.measures.history import took
from bench.report import Result, log_step, number, quantile
from bench.server import Server
from pgsched.db.connection.connect import connect
from pgsched.services.status import read_status

RANGES = ("15m", "1h", "6h", "24h", "7d", "30d", "1y")
PAGES = (
    *[f"/?range={one}" for one in RANGES], "/jobs", "/jobs?after={job}", "/jobs/{job}", "/jobs/{job}?range=7d",
    "/jobs/{job}?range=1y", "/jobs/{job}?day={day}", "/jobs/{job}?at={day}T12:00", "/job/new", "/job/edit/{job}",
    "/job/backfill/{job}", "/job/backfill/{job}?from={day}&to={day}T12:00",
    "/preview?schedule=30+2+*+*+*&timezone=Europe/Berlin", "/runs", "/runs?state=queued", "/runs?state=running",
    "/runs?state=succeeded", "/runs?state=dead", "/runs?state=dead&error=db-3", "/runs?job={job}", "/runs?task=task.7",
    "/runs?queue=queue-3&state=dead", "/runs?tag=month", "/runs?tag=nowhere", "/runs?ended_since=2h",
    "/runs?before={run}", "/runs/{run}", "/runs/{dead}", "/runs/{run}/tree", "/queues", "/workers", "/alerts", "/audit",
    "/audit?what=job&name={job}", "/doctor", "/api/v1/status", "/api/v1/jobs", "/api/v1/jobs/{job}",
    "/api/v1/jobs/{job}/slots",
    "/api/v1/jobs/{job}/rates?range=1y", "/api/v1/rates?range=24h", "/api/v1/runs", "/api/v1/runs?state=dead&limit=100",
    "/api/v1/runs/{dead}", "/api/v1/queues", "/api/v1/limits", "/api/v1/workers", "/api/v1/alerts?all=true",
    "/api/v1/audit", "/api/v1/retention", "/api/v1/backfills",
)  # fmt: skip
STATUS_TIMES, COMMAND_TIMES = 100, 20
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Asked:
    """The times of one page in milliseconds: on the server, and until the whole answer had arrived (`whole_p99_ms`)."""

    page: str
    p50_ms: float
    p99_ms: float
    worst_ms: float
    whole_p99_ms: float
    bytes: int
    n: int


def console(server: Server, rows: int, times: int) -> Result:
    """Fill a database, and request every page `times` times."""
    columns = ["page", "server p50", "p99", "worst", "until it is here, p99", "kB"]
    result = Result("console", f"The console with {rows:,} ended runs of {JOBS} jobs", columns)
    with server.database("console") as dsn:
        call(PGSCHED, "setup", dsn)
        with psycopg.connect(dsn, autocommit=True) as there:
            fill(there, rows)
            names = things(there)
        with running(dsn) as port:
            tried = [(page, attempt(port, page, times, names)) for page in PAGES]
        inside, command = of_status(dsn, min(times, STATUS_TIMES)), of_command(dsn, min(times, COMMAND_TIMES))
    asked = [one for _, one in tried if isinstance(one, Asked)]
    result.rows = [line(one) if isinstance(one, Asked) else result.absent(f"`{page}`", one) for page, one in tried]
    result.rows += [line(inside), line(command)]
    slowest = max(asked, key=lambda one: one.p99_ms)
    result.notes = [f"{times} requests of each page, one after the other; the slowest page: {slowest.page},"
                    f" p99 {slowest.p99_ms:.0f} ms"]  # fmt: skip
    result.data = {"pages": [asdict(one) for one in asked], "status": asdict(inside), "command": asdict(command)}
    return result


def things(there: psycopg.Connection) -> dict[str, Iterator[str]]:
    """Return what the pages are about, one value after the other."""
    ids = "SELECT id FROM pgsched.runs WHERE id > (SELECT max(id) FROM pgsched.runs) * %s AND {} ORDER BY id LIMIT 20"
    of = {"run": "state = 'succeeded'", "dead": "state = 'dead'"}
    found = {
        name: [str(row[0]) for share in (0.05, 0.5, 0.9)
               for row in there.execute(ids.format(which).encode(), [share]).fetchall()]
        for name, which in of.items()
    }  # fmt: skip
    days = there.execute("SELECT (now() - n * interval '1 day')::date::text FROM generate_series(1, 30) n").fetchall()
    jobs = [f"job-{1 + n * 7 % JOBS:03}" for n in range(JOBS)]
    return {name: cycle(values) for name, values in {**found, "day": [row[0] for row in days], "job": jobs}.items()}


@contextmanager
def running(dsn: str) -> Iterator[int]:
    """Run `pgsched web` on the database; yield its port."""
    command = [sys.executable, "-m", "pgsched", "web", "--no-auth", "--port", "0", "--dsn", dsn]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stderr=said, stdout=subprocess.DEVNULL, env=dict(os.environ))
        try:
            yield listening(said.fileno(), process)
        finally:
            process.terminate()
            process.wait(30)


def listening(said: int, process: subprocess.Popen[bytes]) -> int:
    """Return the port once the console has printed it. Raises RuntimeError if it does not start."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        found = re.search(rb"http://127\.0\.0\.1:(\d+)/\n", os.pread(said, 10_000, 0))
        if found:
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"pgsched web did not start: {os.pread(said, 2000, 0).decode()}")


def attempt(port: int, page: str, times: int, names: dict[str, Iterator[str]]) -> Asked | str:
    """Return a page's times, or why they could not be measured, so that the other pages are still measured."""
    try:
        return ask(port, page, times, names)
    except (RuntimeError, OSError) as error:
        log_step(f"console: {page}: {error}")
        return str(error)


def ask(port: int, page: str, times: int, names: dict[str, Iterator[str]]) -> Asked:
    """Request one page `times` times, after one request that warms up."""
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    server_ms: list[float] = []
    whole_ms: list[float] = []
    for _ in range(times + 1):
        path = re.sub(r"\{(\w+)\}", lambda name: next(names[name[1]]), page)
        began = time.perf_counter()
        conn.request("GET", path)
        answer = conn.getresponse()
        body = answer.read()
        whole_ms.append((time.perf_counter() - began) * 1000)
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {body[-300:]!r}")
        server_ms.append(float(answer.headers["Server-Timing"].partition("dur=")[2]))
    conn.close()
    one = Asked(page, *spread(server_ms[1:]), quantile(whole_ms[1:], 0.99), len(body), times)
    log_step(f"console: {page}: p50 {one.p50_ms:.1f}, p99 {one.p99_ms:.1f} ms")
    return one


def spread(values: list[float]) -> tuple[float, float, float]:
    return quantile(values, 0.5), quantile(values, 0.99), max(values)


def of_status(dsn: str, times: int) -> Asked:
    """Measure the snapshot that `pgsched status` prints, in this process."""
    ms = []
    with connect(dsn, purpose="bench") as conn:
        for _ in range(times + 1):
            began = time.perf_counter()
            read_status(conn)
            ms.append((time.perf_counter() - began) * 1000)
    return Asked("`status`, the snapshot", *spread(ms[1:]), quantile(ms[1:], 0.99), 0, times)


def of_command(dsn: str, times: int) -> Asked:
    """Measure `pgsched status` as a process."""
    ms = [took("status", "--dsn", dsn) for _ in range(times)]
    return Asked("`pgsched status`, the process", *spread(ms), quantile(ms, 0.99), 0, times)


def line(one: Asked) -> list[str]:
    """Return a row of the table."""
    times = [number(value, 1, " ms") for value in (one.p50_ms, one.p99_ms, one.worst_ms, one.whole_p99_ms)]
    page = one.page if one.page.startswith("`") else f"`{one.page}`"
    return [page, *times, number(one.bytes / 1024, 0) if one.bytes else "-"]
