"""The pages of runs: the filtered list, the page of one run, its graph, its output, and its buttons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pgsched.core.model import KINDS_OF_RUNS, Row, State
from pgsched.core.progress import parse_progress
from pgsched.core.wording import format_short_duration
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.reports import name_hints
from pgsched.db.queries.runs import graphs, run_output, runs
from pgsched.db.queries.runs.run_filter import Filter
from pgsched.db.queries.runs.run_output import BEGINNING, ReadPosition
from pgsched.errors import InputError, NotFound
from pgsched.services.runs import changes, pages
from pgsched.services.runs.detail import Span, read_detail
from pgsched.services.runs.filters import FIELDS, filter_of
from pgsched.services.runs.tree import lines, summary
from pgsched.web.api.errors import status_of
from pgsched.web.pages.rendering import query_string
from pgsched.web.pages.responses import Redirect, View, field_row_id, field_text, local_path

PAGE = 50
TREE_SHOWN = 500
WIDTH = 600.0


def filter_of_request(request: Request) -> Filter:
    """Return the filter in the URL or the form.

    Raises InputError for an invalid value.
    """
    return filter_of(lambda name: field_text(request, name))


def filter_fields(request: Request) -> dict[str, str]:
    """Return the fields of the filter that are set, as texts."""
    return {name: text for name in FIELDS if (text := field_text(request, name)) is not None}


def index(request: Request, conn: Connection[Any]) -> View:
    """Return the list of the newest runs that match the filter."""
    before, problem, similar = field_row_id(request, "before", "run"), None, []
    try:
        found = pages.read_page(conn, replace(filter_of_request(request), before_id=before, limit=PAGE))
    except (InputError, NotFound) as error:
        found, problem = pages.Page([], more=False), error
        similar = jobs.similar_job_names(conn, field_text(request, "job") or "") if isinstance(error, NotFound) else []
    problem_text = f'there is no job named "{field_text(request, "job")}".' if similar else problem and str(problem)
    filters = {what: field_text(request, what) for what in ("queue", "task", "tag")} if not found.runs else {}
    meant = {what: name_hints.similar_names_of_runs(conn, what, name) for what, name in filters.items() if name}
    asked, last = filter_fields(request), found.runs[-1]["id"] if found.runs else None
    further = query_string(asked, before=found.end_id + 1) if found.end_id is not None else None
    if found.end_at is not None:
        further = query_string(asked, ended_until=found.end_at.isoformat())
    values = {"runs": found.runs, "fields": asked, "states": list(State), "kinds": KINDS_OF_RUNS,
              "more": query_string(asked, before=last) if found.more else None, "further": further,
              "older": before is not None, "problem": problem_text, "similar": similar,
              "meant": {what: names for what, names in meant.items() if names},
              "verbs": possible_actions(asked.get("state"))}  # fmt: skip
    return View("runs.html", values, 200 if problem is None else status_of(problem))


def possible_actions(state: str | None) -> list[str]:
    """Return the actions that are possible for runs in this state; None: for runs in any state."""
    return [verb.name for verb in changes.VERBS.values() if state is None or state in verb.states]


def show(request: Request, conn: Connection[Any]) -> View:
    """Return the page of one run."""
    found = read_detail(conn, request.path_params["id"])
    run = found.run
    values = {"found": found, "run": run, "conditions": found.conditions, "timeline": timeline(found.spans),
              "open": run["finished_at"] is None, "retried": run["state"] in changes.RETRY.states,
              "progress": parse_progress(run["progress"], run["attempt"]),
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
            "text": f"{f'attempt {one.attempt}: ' if one.attempt else ''}{one.what},"
            f" {format_short_duration(one.end - one.begin)}",
        }
        for one in spans
    ]


def tree(request: Request, conn: Connection[Any]) -> View:
    """Return the page of the graph that a run belongs to."""
    run_id = request.path_params["id"]
    found = graphs.list_graph(conn, run_id)
    shown = list(islice(lines(found, run_id), TREE_SHOWN))
    values = {"run_id": run_id, "lines": shown, "summary": summary(found)}
    return View("tree.html", values | {"count": len(found)})


def log(request: Request, conn: Connection[Any]) -> Response:
    """Return the whole output of a run as a text file."""
    run_id = request.path_params["id"]
    runs.show_run(conn, run_id)
    pool = request.app.state.pool

    def read(place: ReadPosition) -> list[Row]:
        with pool.connection() as mine:
            return run_output.read_output(mine, run_id, place)

    def pieces() -> Iterator[str]:
        place = BEGINNING
        while found := read(place):  # no connection is in use while a slow client reads
            yield from (row["chunk"] for row in found)
            place = run_output.behind(found)

    name = f'attachment; filename="run-{run_id}.log"'
    return StreamingResponse(pieces(), media_type="text/plain; charset=utf-8", headers={"Content-Disposition": name})


# ---- actions of one button


def retry(request: Request, conn: Connection[Any]) -> Redirect:
    """Revive the run."""
    run_id = request.path_params["id"]
    return return_to_button(request, f"Run {run_id} {changes.retry(conn, run_id).words}.")


def cancel(request: Request, conn: Connection[Any]) -> Redirect:
    """Cancel the run, or ask its worker to stop it."""
    run_id = request.path_params["id"]
    return return_to_button(
        request, f"Run {run_id} {changes.cancel(conn, run_id, field_text(request, 'reason')).words}."
    )


def retry_tree(request: Request, conn: Connection[Any]) -> Redirect:
    """Revive the runs of the graph that failed."""
    done = changes.retry_graph(conn, request.path_params["id"])
    return Redirect(f"/runs/{request.path_params['id']}/tree", f"Retried {len(done)} runs.")


def cancel_tree(request: Request, conn: Connection[Any]) -> Redirect:
    """Cancel the unfinished runs of the graph."""
    done = changes.cancel_graph(conn, request.path_params["id"], field_text(request, "reason"))
    return Redirect(f"/runs/{request.path_params['id']}/tree", f"Cancelled {len(done.rows)} runs.")


def return_to_button(request: Request, message: str) -> Redirect:
    """Return to the page with the button."""
    return Redirect(local_path(field_text(request, "next"), f"/runs/{request.path_params['id']}"), message)
