"""The pages that retry or cancel many runs.

Invariant: nothing is changed before a page has said how many runs are meant, and which.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs.run_filter import Filter
from pgsched.errors import InputError
from pgsched.services.runs import changes
from pgsched.services.runs.changes import Changed, Choice, Verb
from pgsched.web.pages.rendering import query_string
from pgsched.web.pages.responses import Redirect, View, field_text
from pgsched.web.pages.runs import filter_fields, filter_of_request

SHOWN = 20


def choose(request: Request, conn: Connection[Any]) -> Redirect:
    """Redirect to the page that asks, with the ticked runs and the pressed button in its address."""
    ids = [("id", str(run_id)) for run_id in ticked_ids(request)]
    return Redirect(
        f"/runs/many?{urlencode([*filter_fields(request).items(), ('verb', field_text(request, 'verb') or ''), *ids])}"
    )


def ask(request: Request, conn: Connection[Any]) -> View:
    """Return the page that says how many runs are meant, and which."""
    choice, ticked = chosen_runs(request, conn), bool(ticked_ids(request))
    choice, other = changes.drop_unfit(conn, choice) if ticked else (choice, [])
    values = {
        "verb": choice.verb.name,
        "count": len(choice.ids),
        "runs": changes.read_first(conn, choice, SHOWN),
        "other": other,
        "fields": filter_fields(request),
        "ids": choice.ids if ticked else [],
        "back": f"/runs?{query_string(filter_fields(request))}",
    }
    return View("many.html", values)


def change_runs(request: Request, conn: Connection[Any]) -> Redirect:
    """Change the runs; runs that changed meanwhile are left alone, and the message says so."""
    choice = chosen_runs(request, conn)
    done = changes.change(conn, choice, reason=field_text(request, "reason"))
    return Redirect(f"/runs?{query_string(filter_fields(request))}", result_message(choice.verb, done))


def ticked_ids(request: Request) -> list[int]:
    """Return the ids of the ticked runs; none if the button means all runs of the filter.

    Raises InputError for a text that is not an id.
    """
    if (field_text(request, "verb") or "").endswith("-all"):
        return []
    texts = request.state.form.get("id") or request.query_params.getlist("id")
    if not all(text.isdecimal() and len(text) < 20 for text in texts):
        raise InputError("id: is not a whole number", "id")
    return sorted({int(text) for text in texts})


def chosen_runs(request: Request, conn: Connection[Any]) -> Choice:
    """Return the ticked runs, or all runs that match the filter.

    Raises InputError for an unknown button, if no run is ticked, and for all runs without a filter.
    """
    text = field_text(request, "verb") or ""
    verb = changes.VERBS.get(text.removesuffix("-all"))
    if verb is None:
        raise InputError(f'verb: "{text.removesuffix("-all")[:50]}" is neither retry nor cancel', "verb")
    if ids := ticked_ids(request):
        return changes.choose(conn, verb, ids)
    if not text.endswith("-all"):
        raise InputError("tick at least one run", "id")
    chosen = filter_of_request(request)
    if chosen == Filter():
        raise InputError("set a filter first: all runs there are is never meant")
    return changes.choose(conn, verb, chosen, most=changes.MOST)


def result_message(verb: Verb, done: Changed) -> str:
    """Describe how many runs were changed, and why others were left alone."""
    why = [f"{len(ids)} left alone: {reason}" for reason, ids in done.reasons[:5]]
    return "\n".join([f"{verb.participle.capitalize()} {done.words}.", *why])
