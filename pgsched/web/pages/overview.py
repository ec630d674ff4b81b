"""The first page of the console: health, open runs, and charts of the last minutes to months."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request

from pgsched.core.text import format_number
from pgsched.core.wording import format_short_duration
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports.live import database_now
from pgsched.services import charts, long_charts, status
from pgsched.services.charts import RANGES, STRETCHES, Stretch
from pgsched.services.long_charts import LONGER
from pgsched.services.status_model import Status
from pgsched.web.pages.charts import SAMPLED, Chart, Series, chart, number
from pgsched.web.pages.depth import Depths
from pgsched.web.pages.responses import View, field_text

SLOW = ("7d", "30d", "1y")  # ranges whose charts change too slowly to see
SAMPLE = 2500  # finished runs that are read; few, because a page looks every two seconds


def overview(request: Request, conn: Connection[Any]) -> View:
    """Return the first page."""
    asked = field_text(request, "range")
    spans = {**RANGES, **LONGER}
    span = asked if asked in spans else "1h"
    found = status.read_status(conn, SAMPLE)
    recent = request.app.state.recent.get(span)
    lately = long_charts.read_range(conn, span) if recent is None else recent.look(conn, database_now(conn))
    per_s = found.finished.per_s(5) if recent is None else charts.compute_rate(lately, 300)
    values = {
        "status": found, "per_s": per_s, "span": span, "spans": list(spans), "failures": charts.list_failed_runs(conn),
        "charts": [depth_chart(request.app.state.depths, span), *rate_charts(lately, span)],
        "busy": sum(worker.running for worker in found.workers),
        "slots": sum(worker.concurrency for worker in found.workers),
        "depth": {name: sum(getattr(queue, name) for queue in found.queues)
                  for name in ("queued", "running", "scheduled", "waiting")},
        "alerts": alerts.list_alerts(conn, n=20), "paused": paused_queues(found),
    }  # fmt: skip
    return View("overview.html", values, every_s=10.0 if span in SLOW else None)


def paused_queues(found: Status) -> set[str]:
    """Return the names of the queues from which no run starts because of a pause."""
    if any(pause.what == "all" for pause in found.paused):
        return {queue.name for queue in found.queues}
    return {pause.name for pause in found.paused if pause.what == "queue"}


def depth_chart(depths: Depths, span: str) -> Chart:
    """Return the chart of queued, running and other open runs since the console started."""
    seconds = {**RANGES, **LONGER}[span] * STRETCHES
    noted, now = depths.since(seconds), time.monotonic()
    noted = noted[:: max(1, len(noted) // 120)]
    series = [
        Series("queued", "a", [one.queued for one in noted], filled=True),
        Series("running", "b", [one.running for one in noted]),
        Series("scheduled or waiting", "c", [one.not_claimable for one in noted]),
    ]
    times = [f"{format_short_duration(round(now - one.at))} ago" for one in noted]
    whole = not noted or now - noted[0].at > 0.9 * seconds
    note = "" if whole else f"noted since this console began, {format_short_duration(round(now - noted[0].at))} ago"
    places = [max(0.0, 1 - (now - one.at) / seconds) for one in noted]
    return chart("Depth", series, times, number, f"{span} ago", places=places, note=note)


def rate_charts(lately: list[Stretch], span: str) -> list[Chart]:
    """Return the charts of throughput, latency, lateness and errors."""
    form = "%Y-%m-%d %H:%M" if span in LONGER else "%H:%M:%S"
    times = [f"{one.from_at:{form}} UTC" for one in lately]
    begin = f"{span} ago"
    sampled = SAMPLED if any(one.sampled for one in lately) else ""
    latency = [Series("due to start, half", "a", [one.wait_50 for one in lately]),
               Series("95 %", "b", [one.wait_95 for one in lately])]  # fmt: skip
    lateness = [Series("slot to start, half", "a", [one.late_50 for one in lately]),
                Series("95 %", "b", [one.late_95 for one in lately]),
                Series("worst", "bad", [one.late_max for one in lately])]  # fmt: skip
    errors = [Series("dead", "bad", [one.dead for one in lately], filled=True),
              Series("missed", "b", [one.missed for one in lately]),
              Series("retried", "c", [one.retried for one in lately])]  # fmt: skip
    per_s = [Series("runs a second", "a", [one.per_s for one in lately], filled=True)]
    return [
        chart("Throughput", per_s, times, lambda value: f"{format_number(value)}/s", begin, note=sampled),
        chart("Latency", latency, times, format_short_duration, begin),
        chart("Lateness", lateness, times, format_short_duration, begin),
        chart("Errors", errors, times, number, begin, note=sampled),
    ]
