"""The pages of the workers and of the doctor's findings."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports.facts import newest_leader
from pgsched.services import charts, pauses, status
from pgsched.web.pages.overview import SAMPLE
from pgsched.web.pages.responses import Redirect, View


def workers(request: Request, conn: Connection[Any]) -> View:
    """Return the page of live workers and of workers gone within the last hour."""
    alive, leader, gone = charts.list_live_workers(conn), newest_leader(conn), charts.list_gone_workers(conn)
    return View("workers.html", {"workers": alive, "leader": leader, "gone": gone})


def drain(request: Request, conn: Connection[Any]) -> Redirect:
    """Ask a worker to claim nothing more and to end."""
    gone = pauses.drain(conn, request.path_params["id"], request.state.visitor.user or None)
    return Redirect("/workers", f"{gone['name']} was asked to drain: it begins within a third of its lease.")


def doctor(request: Request, conn: Connection[Any]) -> View:
    """Return the page of current problems and of what `pgsched doctor` found last."""
    findings, age_s = request.app.state.diagnosis.last(all_of_it=request.state.visitor.may_write)
    values = {"findings": findings and [one for one in findings if one.name != "work"], "age_s": age_s,
              "status": status.read_status(conn, SAMPLE)}  # fmt: skip
    return View("doctor.html", values, every_s=1.0 if findings is None else 5.0)
