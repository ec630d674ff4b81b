"""The pages of backfills: the form with the decision for every slot, the start, and how far each is."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request

from pgsched.core.planning.backfill import MODES
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request as Wanted
from pgsched.errors import InputError
from pgsched.services.jobs import backfilling
from pgsched.web.pages.responses import Redirect, View, field_integer, field_text, job_url

SHOWN = 500


def ask(request: Request, conn: Connection[Any]) -> View:
    """Return the form; with a range in the URL, also every slot and its decision. Nothing is written."""
    job = jobs.show_job(conn, request.path_params["name"])
    values: dict[str, Any] = {"job": job, "modes": MODES, "problem": None, "found": None}
    if field_text(request, "from") or field_text(request, "to"):
        try:
            found = backfilling.preview(conn, job["name"], backfill_request(request))
            choices = found.choices
            values |= {"found": found.range, "choices": choices[:SHOWN], "count": len(choices),
                       "decisions": Counter(choice.action for choice in choices)}  # fmt: skip
        except InputError as error:
            values["problem"] = str(error)
    return View("backfill_ask.html", values)


def backfill_request(request: Request) -> Wanted:
    """Return the request that the fields describe.

    Raises InputError for an invalid number.
    """
    priority = field_integer(request, "priority")
    most = field_integer(request, "max_active") or 1
    if not 1 <= most <= 1000:
        raise InputError("max active: is not between 1 and 1000", "max_active")
    return Wanted(
        field_text(request, "from") or "",
        field_text(request, "to") or "",
        field_text(request, "mode") or "missing",
        most,
        field_text(request, "reverse") == "yes",
        9 if priority is None else priority,
    )


def start(request: Request, conn: Connection[Any]) -> Redirect:
    """Ask the leader for the backfill."""
    name = request.path_params["name"]
    try:
        added = backfilling.start(conn, name, backfill_request(request))
    except InputError as error:
        return Redirect(job_url(name, "backfill"), str(error), bad=True)
    return Redirect(f"/backfills/{added['id']}", f"Backfill {added['id']} is asked for; the leader works on it.")


def show(request: Request, conn: Connection[Any]) -> View:
    """Return the page of one backfill."""
    return View("backfill.html", {"one": backfills.show_backfill(conn, request.path_params["id"])})


def cancel(request: Request, conn: Connection[Any]) -> Redirect:
    """Cancel the backfill with its open runs."""
    done = backfilling.cancel(conn, request.path_params["id"], field_text(request, "reason"))
    return Redirect(f"/backfills/{done.id}", f"The backfill {done.words}.")
