"""The pages of backfills: the form with the decision for every slot, the start, and the progress."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request as Wanted
from pgsched.errors import InputError
from pgsched.services.jobs import backfilling
from pgsched.web.pages.responses import Done, View, given, job_url, number

MODES = ("missing", "failed", "all")
SHOWN = 500


def ask(request: Request, conn: Connection[Any]) -> View:
    """Return the form; with a range in the URL, also every slot and its decision. Nothing is written."""
    job = jobs.show(conn, request.path_params["name"])
    values: dict[str, Any] = {"job": job, "modes": MODES, "problem": None, "found": None}
    if given(request, "from") or given(request, "to"):
        try:
            found = backfilling.preview(conn, job["name"], wanted(request))
            choices = found.choices
            values |= {"found": found.range, "choices": choices[:SHOWN], "count": len(choices),
                       "decisions": Counter(choice.action for choice in choices)}  # fmt: skip
        except InputError as error:
            values["problem"] = str(error)
    return View("backfill_ask.html", values)


def wanted(request: Request) -> Wanted:
    """Return the request that the fields describe.

    Raises InputError for an invalid number.
    """
    priority = number(request, "priority")
    most = number(request, "max_active") or 1
    if not 1 <= most <= 1000:
        raise InputError("max active: is not between 1 and 1000", "max_active")
    return Wanted(
        given(request, "from") or "", given(request, "to") or "", given(request, "mode") or "missing", most,
        given(request, "reverse") == "yes", 9 if priority is None else priority,
    )  # fmt: skip


def start(request: Request, conn: Connection[Any]) -> Done:
    """Ask the leader for the backfill."""
    name = request.path_params["name"]
    try:
        added = backfilling.start(conn, name, wanted(request))
    except InputError as error:
        return Done(job_url(name, "backfill"), str(error), bad=True)
    return Done(f"/backfills/{added['id']}", f"Backfill {added['id']} is asked for; the leader works on it.")


def show(request: Request, conn: Connection[Any]) -> View:
    """Return the page of one backfill."""
    return View("backfill.html", {"one": backfills.show(conn, request.path_params["id"])})


def cancel(request: Request, conn: Connection[Any]) -> Done:
    """Cancel the backfill with its open runs."""
    done = backfilling.cancel(conn, request.path_params["id"], given(request, "reason"))
    return Done(f"/backfills/{done.id}", f"The backfill {done.words}.")
