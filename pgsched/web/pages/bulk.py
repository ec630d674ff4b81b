"""Retry and cancel of many runs. The rule: nothing is changed before a page has said how many and which."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from pgsched.core.model import State
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import run_filter, runs
from pgsched.db.queries.runs.run_filter import Filter
from pgsched.db.rows import Row
from pgsched.errors import InputError
from pgsched.web.pages.rendering import query
from pgsched.web.pages.responses import Done, View, given
from pgsched.web.pages.runs import fields, wanted

SHOWN, MOST = 20, 10_000
VERBS = {"retry": runs.RETRIED, "cancel": runs.CANCELLED}


def choose(request: Request, conn: Connection[Any]) -> Done:
    """What was ticked and which button was pressed, as the address of the page that asks."""
    ids = [("id", str(run_id)) for run_id in given_ids(request)]
    return Done(f"/runs/many?{urlencode([*fields(request).items(), ('verb', given(request, 'verb') or ''), *ids])}")


def ask(request: Request, conn: Connection[Any]) -> View:
    """How many and which: the page before the change."""
    verb, states = verb_of(request)
    ids = meant(request, conn, states)
    found = run_filter.by_id(conn, ids) if given_ids(request) else []
    other = [run for run in found if run["state"] not in states]
    ids = [run_id for run_id in ids if run_id not in {run["id"] for run in other}]
    values = {
        "verb": verb, "count": len(ids), "runs": run_filter.by_id(conn, ids[:SHOWN]), "other": other,
        "fields": fields(request), "ids": ids if given_ids(request) else [], "back": f"/runs?{query(fields(request))}",
    }  # fmt: skip
    return View("many.html", values)


def do(request: Request, conn: Connection[Any]) -> Done:
    """The change. What somebody else changed meanwhile is left alone, and said."""
    verb, states = verb_of(request)
    ids = meant(request, conn, states)
    if verb == "retry":
        done = runs.retry_many(conn, ids, states)
    else:
        done = runs.cancel_many(conn, ids, given(request, "reason"), states)
    return Done(f"/runs?{query(fields(request))}", told(verb, done))


def verb_of(request: Request) -> tuple[str, tuple[State, ...]]:
    """What is to be done, and the states of runs to which it can be."""
    verb = (given(request, "verb") or "").removesuffix("-all")
    if verb not in VERBS:
        raise InputError(f'verb: "{verb[:50]}" is neither retry nor cancel', "verb")
    state = given(request, "state")
    if state is None or given_ids(request):
        # by filters and without a state: the dead ones alone, as `pgsched run retry` does
        usual = verb == "retry" and not given_ids(request)
        return verb, VERBS[verb][:1] if usual else VERBS[verb]
    if state not in VERBS[verb]:
        raise InputError(f"state: a run that is {state} cannot be {'retried' if verb == 'retry' else 'cancelled'}")
    return verb, (State(state),)


def given_ids(request: Request) -> list[int]:
    """The runs that were ticked; none where all are meant that the filters choose."""
    if (given(request, "verb") or "").endswith("-all"):
        return []
    texts = request.state.form.get("id") or request.query_params.getlist("id")
    if not all(text.isdecimal() and len(text) < 20 for text in texts):
        raise InputError("id: is not a whole number", "id")
    return sorted({int(text) for text in texts})


def meant(request: Request, conn: Connection[Any], states: tuple[State, ...]) -> list[int]:
    """The ids."""
    if ids := given_ids(request):
        return ids
    if not (given(request, "verb") or "").endswith("-all"):
        raise InputError("tick at least one run", "id")
    chosen = wanted(request)
    if chosen == Filter():
        raise InputError("set a filter first: all runs there are is never meant")
    found = run_filter.ids(conn, chosen, states)
    if len(found) > MOST:
        raise InputError(f"the filters mean {len(found):,} runs; at most {MOST:,} can be changed here: narrow them, or"
                         " use `pgsched run`")  # fmt: skip
    return found


def told(verb: str, done: list[Row]) -> str:
    """How many, and why not the others."""
    left = [row for row in done if row["skipped"] is not None]
    asked = sum(row["after"] == "requested" for row in done)
    running = f" ({asked} of them run: their workers were asked to stop them)" if asked else ""
    verbed = "Retried" if verb == "retry" else "Cancelled"
    why = [f"{n} left alone: {reason}" for reason, n in Counter(row["skipped"] for row in left).most_common(5)]
    return "\n".join([f"{verbed} {len(done) - len(left)} of {len(done)} runs{running}.", *why])
