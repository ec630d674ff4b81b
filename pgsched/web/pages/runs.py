"""The pages of runs: the filtered list, the page of one run, its graph, its output, and its buttons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pgsched.core.model import Kind, Row, State
from pgsched.core.progress import progress_of
from pgsched.core.wording import duration
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.reports import name_hints
from pgsched.db.queries.runs import graphs, run_output, runs
from pgsched.db.queries.runs.run_filter import Filter
from pgsched.db.queries.runs.run_output import BEGINNING, Place
from pgsched.errors import InputError, NotFound
from pgsched.services.runs import changes, pages
from pgsched.services.runs.detail import Span, whole
from pgsched.services.runs.filters import FIELDS, filter_of
from pgsched.services.runs.tree import lines, summary
from pgsched.web.pages.rendering import query
from pgsched.web.pages.responses import Done, View, an_id, given, local, status_of

PAGE = 50
TREE_SHOWN = 500
WIDTH = 600.0


def wanted(request: Request) -> Filter:
    """Return the filter in the URL or the form.

    Raises InputError for an invalid value.
    """
    return filter_of(lambda name: given(request, name))


def fields(request: Request) -> dict[str, str]:
    """Return the fields of the filter that are set, as texts."""
    return {name: text for name in FIELDS if (text := given(request, name)) is not None}


def index(request: Request, conn: Connection[Any]) -> View:
    """Return the list of the newest runs that match the filter."""
    before, problem, similar = an_id(request, "before", "run"), None, []
    try:
        found = pages.page(conn, replace(wanted(request), before_id=before, limit=PAGE))
    except (InputError, NotFound) as error:
        found, problem = pages.Page([], more=False), error
        similar = jobs.similar(conn, given(request, "job") or "") if isinstance(error, NotFound) else []
    told = f'there is no job named "{given(request, "job")}".' if similar else problem and str(problem)
    filters = {what: given(request, what) for what in ("queue", "task", "tag")} if not found.runs else {}
    meant = {what: name_hints.meant(conn, what, name) for what, name in filters.items() if name}
    asked, last = fields(request), found.runs[-1]["id"] if found.runs else None
    further = query(asked, before=found.end_id + 1) if found.end_id is not None else None
    if found.end_at is not None:
        further = query(asked, ended_until=found.end_at.isoformat())
    values = {"runs": found.runs, "fields": asked, "states": list(State), "kinds": list(Kind),
              "more": query(asked, before=last) if found.more else None, "further": further,
              "older": before is not None, "problem": told, "similar": similar,
              "meant": {what: names for what, names in meant.items() if names},
              "verbs": verbs(asked.get("state"))}  # fmt: skip
    return View("runs.html", values, 200 if problem is None else status_of(problem))


def verbs(state: str | None) -> list[str]:
    """Return the actions that are possible for runs in this state; None: for runs in any state."""
    return [verb.name for verb in changes.VERBS.values() if state is None or state in verb.states]


def show(request: Request, conn: Connection[Any]) -> View:
    """Return the page of one run."""
    found = whole(conn, request.path_params["id"])
    run = found.run
    values = {"found": found, "run": run, "standing": found.standing, "timeline": timeline(found.spans),
              "open": run["finished_at"] is None, "retried": run["state"] in changes.RETRY.states,
              "progress": progress_of(run["progress"], run["attempt"]),
              "related": bool(found.before or found.behind)}  # fmt: skip
    return View("run.html", values, every_s=1.0 if run["state"] == "running" else None)


def timeline(spans: list[Span]) -> list[dict[str, Any]]:
    """Return the spans of a run's life as pieces of a bar; short spans stay visible."""
    if not spans:
        return []
    begin, whole_s = spans[0].begin, max((spans[-1].end - spans[0].begin).total_seconds(), 0.001)
    looks = {"waiting": "wait", "succeeded": "good", "running": "running"}
    return [
        {
            "x": round(min((one.begin - begin).total_seconds() / whole_s, 0.995) * WIDTH, 1),
            "width": round(max((one.end - one.begin).total_seconds() / whole_s * WIDTH, 2.5), 1),
            "look": looks.get(one.what, "bad"),
            "text": f"{f'attempt {one.attempt}: ' if one.attempt else ''}{one.what}, {duration(one.end - one.begin)}",
        }
        for one in spans
    ]


def tree(request: Request, conn: Connection[Any]) -> View:
    """Return the page of the graph that a run belongs to."""
    run_id = request.path_params["id"]
    found = graphs.tree(conn, run_id)
    shown = list(islice(lines(found, run_id), TREE_SHOWN))
    values = {"run_id": run_id, "lines": shown, "summary": summary(found)}
    return View("tree.html", values | {"count": len(found)})


def log(request: Request, conn: Connection[Any]) -> Response:
    """Return the whole output of a run as a text file."""
    run_id = request.path_params["id"]
    runs.show(conn, run_id)
    pool = request.app.state.pool

    def read(place: Place) -> list[Row]:
        with pool.connection() as mine:
            return run_output.read(mine, run_id, place)

    def pieces() -> Iterator[str]:
        place = BEGINNING
        while found := read(place):  # no connection is in use while a slow client reads
            yield from (row["chunk"] for row in found)
            place = run_output.behind(found)

    name = f'attachment; filename="run-{run_id}.log"'
    return StreamingResponse(pieces(), media_type="text/plain; charset=utf-8", headers={"Content-Disposition": name})


# ---- actions of one button


def retry(request: Request, conn: Connection[Any]) -> Done:
    """Revive the run."""
    run_id = request.path_params["id"]
    return back(request, f"Run {run_id} is {changes.retry(conn, run_id).state} again.")


def cancel(request: Request, conn: Connection[Any]) -> Done:
    """Cancel the run, or ask its worker to stop it."""
    run_id = request.path_params["id"]
    return back(request, f"Run {run_id} {changes.cancel(conn, run_id, given(request, 'reason')).words}.")


def retry_tree(request: Request, conn: Connection[Any]) -> Done:
    """Revive the runs of the graph that failed."""
    done = changes.retry_graph(conn, request.path_params["id"])
    return Done(f"/runs/{request.path_params['id']}/tree", f"Retried {len(done)} runs.")


def cancel_tree(request: Request, conn: Connection[Any]) -> Done:
    """Cancel the unfinished runs of the graph."""
    done = changes.cancel_graph(conn, request.path_params["id"], given(request, "reason"))
    return Done(f"/runs/{request.path_params['id']}/tree", f"Cancelled {len(done.rows)} runs.")


def back(request: Request, told: str) -> Done:
    """Return to the page with the button."""
    return Done(local(given(request, "next"), f"/runs/{request.path_params['id']}"), told)
