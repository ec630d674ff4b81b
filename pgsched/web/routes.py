"""The routes of the console: the address of each page, each form and each operation of the API."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Route

from pgsched.web.api import openapi, operation_table
from pgsched.web.pages import (
    alerts,
    backfills,
    bulk,
    calendars,
    job_form,
    jobs,
    overview,
    queues,
    retention,
    runs,
    workers,
)
from pgsched.web.pages.live import page
from pgsched.web.pages.responses import Endpoint, Page, action


def shown(path: str, make: Page) -> Route:
    """Return the route of a page (GET)."""
    return Route(path, page(make), methods=["GET"])


def done(path: str, act: Page) -> Route:
    """Return the route of a change (POST)."""
    endpoint: Endpoint = action(act)
    return Route(path, endpoint, methods=["POST"])


ROUTES: list[BaseRoute] = [
    Route("/api/openapi.json", openapi.serve, methods=["GET"]),
    *operation_table.routes(),
    shown("/", overview.overview),
    shown("/jobs", jobs.index),
    Route("/jobs/", RedirectResponse("/jobs", 308), methods=["GET"]),
    shown("/jobs/{name:job}", jobs.show),
    shown("/preview", job_form.preview),
    shown("/job/new", job_form.new),
    done("/job/new", job_form.create),
    shown("/job/edit/{name:job}", job_form.edit),
    done("/job/edit/{name:job}", job_form.change),
    shown("/job/backfill/{name:job}", backfills.ask),
    done("/job/backfill/{name:job}", backfills.start),
    done("/job/pause/{name:job}", jobs.pause),
    done("/job/resume/{name:job}", jobs.resume),
    done("/job/run/{name:job}", jobs.run),
    done("/job/delete/{name:job}", jobs.delete),
    done("/job/exclude/{name:job}", calendars.exclude),
    done("/job/allow/{name:job}", calendars.allow),
    shown("/runs", runs.index),
    shown("/runs/many", bulk.ask),
    done("/runs/many", bulk.choose),
    done("/runs/many/do", bulk.do),
    shown("/runs/{id:row}", runs.show),
    shown("/runs/{id:row}/log", runs.log),
    shown("/runs/{id:row}/tree", runs.tree),
    done("/runs/{id:row}/retry", runs.retry),
    done("/runs/{id:row}/cancel", runs.cancel),
    done("/runs/{id:row}/tree/retry", runs.retry_tree),
    done("/runs/{id:row}/tree/cancel", runs.cancel_tree),
    shown("/queues", queues.index),
    done("/queues/save", queues.save_queue),
    done("/limits/save", queues.save_limit),
    done("/limits/remove", queues.remove_limit),
    done("/pauses/begin", queues.pause),
    done("/pauses/end", queues.resume),
    shown("/workers", workers.workers),
    done("/workers/{id:row}/drain", workers.drain),
    done("/retention/save", retention.save),
    shown("/alerts", alerts.incidents),
    shown("/audit", alerts.audit),
    shown("/doctor", workers.doctor),
    shown("/backfills/{id:row}", backfills.show),
    done("/backfills/{id:row}/cancel", backfills.cancel),
]
