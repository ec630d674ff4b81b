"""The routes of the console: the address of each page, each form and each operation of the API."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Route

from pgsched.web.api import calling, openapi
from pgsched.web.pages import (
    alerts,
    backfills,
    bulk,
    calendars,
    jobs,
    locks,
    overview,
    queues,
    retention,
    runs,
    workers,
)
from pgsched.web.pages.forms import job_form, run_form
from pgsched.web.pages.live import page
from pgsched.web.pages.responses import Endpoint, Page, change_endpoint


def page_route(path: str, make: Page) -> Route:
    """Return the route of a page (GET)."""
    return Route(path, page(make), methods=["GET"])


def change_route(path: str, act: Page) -> Route:
    """Return the route of a change (POST)."""
    endpoint: Endpoint = change_endpoint(act)
    return Route(path, endpoint, methods=["POST"])


ROUTES: list[BaseRoute] = [
    Route("/api/openapi.json", openapi.serve_document, methods=["GET"]),
    *calling.routes(),
    page_route("/", overview.overview),
    page_route("/jobs", jobs.index),
    Route("/jobs/", RedirectResponse("/jobs", 308), methods=["GET"]),
    page_route("/jobs/{name:job}", jobs.show),
    page_route("/preview", job_form.preview),
    page_route("/job/new", job_form.new),
    change_route("/job/new", job_form.create),
    page_route("/job/edit/{name:job}", job_form.edit),
    change_route("/job/edit/{name:job}", job_form.change),
    page_route("/job/backfill/{name:job}", backfills.ask),
    change_route("/job/backfill/{name:job}", backfills.start),
    change_route("/job/pause/{name:job}", jobs.pause),
    change_route("/job/resume/{name:job}", jobs.resume),
    change_route("/job/mode/{name:job}", jobs.set_mode),
    page_route("/job/run/{name:job}", run_form.ask_job),
    change_route("/job/run/{name:job}", run_form.run),
    change_route("/job/delete/{name:job}", jobs.delete),
    change_route("/job/exclude/{name:job}", calendars.exclude),
    change_route("/job/allow/{name:job}", calendars.allow),
    page_route("/runs", runs.index),
    page_route("/runs/new", run_form.new),
    change_route("/runs/new", run_form.create),
    page_route("/runs/many", bulk.ask),
    change_route("/runs/many", bulk.choose),
    change_route("/runs/many/do", bulk.change_runs),
    page_route("/runs/{id:row}", runs.show),
    page_route("/runs/{id:row}/log", runs.log),
    page_route("/runs/{id:row}/tree", runs.tree),
    change_route("/runs/{id:row}/retry", runs.retry),
    change_route("/runs/{id:row}/cancel", runs.cancel),
    change_route("/runs/{id:row}/tree/retry", runs.retry_tree),
    change_route("/runs/{id:row}/tree/cancel", runs.cancel_tree),
    page_route("/queues", queues.index),
    change_route("/queues/save", queues.save_queue),
    change_route("/limits/save", queues.save_limit),
    change_route("/limits/remove", queues.remove_limit),
    change_route("/pauses/begin", queues.pause),
    change_route("/pauses/end", queues.resume),
    page_route("/workers", workers.workers),
    change_route("/workers/{id:row}/drain", workers.drain),
    change_route("/retention/save", retention.save),
    page_route("/locks", locks.locks_page),
    change_route("/locks/break", locks.take_away),
    page_route("/alerts", alerts.incidents),
    page_route("/audit", alerts.audit),
    page_route("/doctor", workers.doctor),
    page_route("/backfills/{id:row}", backfills.show),
    change_route("/backfills/{id:row}/cancel", backfills.cancel),
]
