"""The functions behind the JSON API; each calls a function that the command line calls as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import date, timedelta
from typing import Any

from pgsched.core.input_values import (
    RETENTION_TIMES,
    parse_bounded_instant,
    parse_dates,
    parse_duration,
    parse_instant,
    parse_rate,
    retention_as_json,
)
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.describe import describe
from pgsched.core.schedule.preview import next_slots, preview_job
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import backfills, jobs, queues
from pgsched.db.queries.jobs.backfills import Request
from pgsched.db.queries.jobs.job_columns import SETTABLE
from pgsched.db.queries.leader import retention
from pgsched.db.queries.runs import graphs, run_output, runs
from pgsched.db.queries.runs.run_filter import Filter
from pgsched.errors import InputError
from pgsched.services import charts, pauses, settings, status
from pgsched.services.jobs import backfilling, excluded_dates, job_changes
from pgsched.services.jobs.explain import explain_slot
from pgsched.services.runs import changes
from pgsched.services.runs.filters import filter_of

Given = Mapping[str, Any]
Call = Callable[[Connection[Any], Given], Any]


def show_status(conn: Connection[Any], given: Given) -> Any:
    """Return the status of the whole system."""
    return status.read_status(conn).to_dict()


# ---- jobs


def list_jobs(conn: Connection[Any], given: Given) -> Any:
    """Return jobs by name."""
    wanted = {name: given.get(name) for name in ("queue", "state", "after")}
    return {"jobs": jobs.list_jobs(conn, **wanted, limit=given.get("limit", 100))}


def add_job(conn: Connection[Any], given: Given) -> Any:
    """Create a job and return it."""
    return job_changes.add(conn, row_of(given), given.get("like"))


def show_job(conn: Connection[Any], given: Given) -> Any:
    """Return one job."""
    return jobs.show_job(conn, given["job"])


def change_job(conn: Connection[Any], given: Given) -> Any:
    """Change columns of a job and return it."""
    return job_changes.update(conn, given["job"], row_of(given), given.get("like"))


def row_of(given: Given) -> dict[str, Any]:
    """Return the columns that a body sets, with durations as texts that PostgreSQL reads.

    In JSON a duration may be a number of seconds, as the API returns it.
    """
    return {
        name: f"{value!r} seconds" if SETTABLE[name] == "interval" and isinstance(value, (int, float)) else value
        for name, value in given.items()
        if name not in ("job", "like")
    }


def delete_job(conn: Connection[Any], given: Given) -> Any:
    """Delete a job, and return what was deleted and how many of its runs still run."""
    return job_changes.delete(conn, given["job"]).result


def pause_job(conn: Connection[Any], given: Given) -> Any:
    """Pause the schedule of a job."""
    return job_changes.pause(conn, given["job"], given.get("reason"), given.get("user"))


def resume_job(conn: Connection[Any], given: Given) -> Any:
    """Resume the schedule of a job, from now or from the pause."""
    return job_changes.resume(conn, given["job"], given.get("from", "now"))


def run_job(conn: Connection[Any], given: Given) -> Any:
    """Run a job now, and return the run."""
    run_id = job_changes.run(conn, given["job"], given.get("args"), given.get("overlap", "allow"))
    return runs.show_run(conn, run_id)


def foresee_job(conn: Connection[Any], given: Given) -> Any:
    """Return the next slots of a job."""
    return asdict(preview_job(jobs.show_planned_job(conn, given["job"]), given.get("count", 10)))


def explain(conn: Connection[Any], given: Given) -> Any:
    """Explain what happened to a slot of a job."""
    return asdict(explain_slot(conn, given["job"], given.get("at")))


def foresee(conn: Connection[Any], given: Given) -> Any:
    """Describe a schedule, and return its next slots."""
    since = parse_bounded_instant("from", given.get("from"))
    schedule = parse(given["expression"], given.get("timezone", "UTC"), since)
    fires = [] if schedule.fixed_delay else next_slots(schedule, since, given.get("count", 10))
    return {"sentence": describe(schedule), "fires": [asdict(fire) for fire in fires]}


def list_dates(conn: Connection[Any], given: Given) -> Any:
    """Return the excluded dates of a job."""
    return {"dates": [asdict(one) for one in excluded_dates.entries(conn, given["job"])]}


def exclude_dates(conn: Connection[Any], given: Given) -> Any:
    """Exclude dates of a job."""
    return asdict(excluded_dates.exclude(conn, given["job"], *dates(given), given.get("reason")))


def allow_dates(conn: Connection[Any], given: Given) -> Any:
    """Let a job run on excluded dates again."""
    return {"dates": [asdict(one) for one in excluded_dates.allow(conn, given["job"], *dates(given))]}


def dates(given: Given) -> tuple[date, date]:
    """Return the first and the last date; without `to` they are the same."""
    return parse_dates(f"{given['from']}..{given.get('to') or given['from']}")


# ---- backfills


def backfill(conn: Connection[Any], given: Given) -> Any:
    """Start a backfill; with dry_run only return the decision for each slot."""
    wanted = Request(given["from"], given["to"], given.get("mode", "missing"), given.get("max_active", 1),
                     given.get("reverse", False), given.get("priority", 9))  # fmt: skip
    if not given.get("dry_run"):
        return backfilling.start(conn, given["job"], wanted)
    foreseen = backfilling.preview(conn, given["job"], wanted)
    found = foreseen.range
    return {"job": found.job["name"], "slots": found.slots, "undecided_from": found.undecided_from,
            "choices": [asdict(choice) for choice in foreseen.choices[:changes.MOST]]}  # fmt: skip


def list_backfills(conn: Connection[Any], given: Given) -> Any:
    """Return the newest backfills."""
    return {"backfills": backfills.list_backfills(conn, given.get("limit", 50))}


def show_backfill(conn: Connection[Any], given: Given) -> Any:
    """Return one backfill."""
    return backfills.show_backfill(conn, given["id"])


def cancel_backfill(conn: Connection[Any], given: Given) -> Any:
    """Cancel a backfill and its open runs."""
    return asdict(backfilling.cancel(conn, given["id"], given.get("reason")))


# ---- runs


def list_runs(conn: Connection[Any], given: Given) -> Any:
    """Return the newest runs that match the filter."""
    wanted = replace(filter_of(given.get), limit=given.get("limit", 50), before_id=given.get("before"))
    return {"runs": runs.list_runs(conn, wanted)}


def show_run(conn: Connection[Any], given: Given) -> Any:
    """Return one run with its attempts."""
    return runs.show_run(conn, given["id"])


def update_run(conn: Connection[Any], given: Given) -> Any:
    """Change a run that has not started, and return it."""
    at = parse_instant("at", given.get("at"), ahead=True)
    changes.update(conn, given["id"], priority=given.get("priority"), at=at, queue=given.get("queue"))
    return runs.show_run(conn, given["id"])


def retry_run(conn: Connection[Any], given: Given) -> Any:
    """Revive one run, and return its new state."""
    return {"id": given["id"], "result": changes.retry(conn, given["id"]).state}


def cancel_run(conn: Connection[Any], given: Given) -> Any:
    """Cancel one run, or ask its worker to stop it."""
    return asdict(changes.cancel(conn, given["id"], given.get("reason")))


def run_tree(conn: Connection[Any], given: Given) -> Any:
    """Return the graph of runs that a run belongs to."""
    return {"runs": graphs.list_graph(conn, given["id"])}


def retry_tree(conn: Connection[Any], given: Given) -> Any:
    """Revive the runs of a graph that failed."""
    return {"runs": changes.retry_graph(conn, given["id"])}


def cancel_tree(conn: Connection[Any], given: Given) -> Any:
    """Cancel the unfinished runs of a graph."""
    return {"runs": changes.cancel_graph(conn, given["id"], given.get("reason")).rows}


def run_log(conn: Connection[Any], given: Given) -> Any:
    """Return a page of a run's output; the next page begins after the attempt and seq of the last line."""
    runs.show_run(conn, given["id"])
    place = run_output.ReadPosition(given.get("after_attempt", 0), given.get("after_seq", -1))
    found = run_output.read_output(conn, given["id"], place, given.get("attempt"), given.get("stream"))
    return {"lines": [{name: row[name] for name in ("attempt", "seq", "at", "stream")} | {"text": row["chunk"]}
                      for row in found]}  # fmt: skip


def retry_many(conn: Connection[Any], given: Given) -> Any:
    """Revive the runs with these ids, or those that match the filter."""
    return change_many(conn, changes.RETRY, given)


def cancel_many(conn: Connection[Any], given: Given) -> Any:
    """Cancel the runs with these ids, or those that match the filter."""
    return change_many(conn, changes.CANCEL, given)


def change_many(conn: Connection[Any], verb: changes.Verb, given: Given) -> Any:
    """Retry or cancel the runs with these ids, or those that match the filter.

    Raises InputError unless exactly one of ids and filter is given, and for too many runs.
    """
    wanted, ids = filter_of(given.get), given.get("ids")
    if (ids is None) == (wanted == Filter()):
        raise InputError("name runs either by ids or by a filter", "ids")
    choice = changes.choose(conn, verb, wanted if ids is None else ids, most=changes.MOST)
    if given.get("dry_run"):
        return {"dry_run": True, "changed": 0, "skipped": 0, "ids": choice.ids}
    done = changes.change(conn, choice, reason=given.get("reason"))
    return {"dry_run": False, "changed": done.count, "skipped": len(done.left), "runs": done.rows}


# ---- queues, limits, pauses, retention, workers


def values_of(given: Given) -> dict[str, Any]:
    """Return the columns that a body sets; one text gives the rate and its period."""
    values = {name: value for name, value in given.items() if name != "name"}
    if "rate" in values:
        rate, period = (None, None) if values["rate"] is None else parse_rate(values["rate"])
        values |= {"rate": rate, "rate_period": period} | ({"rate_burst": None} if rate is None else {})
    if values.get("ageing") is not None:
        values["ageing"] = parse_duration("ageing", values["ageing"])
    return values


def list_queues(conn: Connection[Any], given: Given) -> Any:
    """Return queues with settings, a pause or open runs."""
    return {"queues": queues.list_queues(conn)}


def set_queue(conn: Connection[Any], given: Given) -> Any:
    """Change settings of a queue."""
    return settings.set_queue(conn, given["name"], values_of(given))


def list_limits(conn: Connection[Any], given: Given) -> Any:
    """Return the limits of keys."""
    return {"limits": queues.list_limits(conn)}


def set_limit(conn: Connection[Any], given: Given) -> Any:
    """Change a limit of keys."""
    return settings.set_limit(conn, given["name"], values_of(given))


def remove_limit(conn: Connection[Any], given: Given) -> Any:
    """Remove a limit of keys."""
    settings.remove_limit(conn, given["name"])
    return {"name": given["name"]}


def list_pauses(conn: Connection[Any], given: Given) -> Any:
    """Return what is paused."""
    return {"pauses": queues.list_pauses(conn)}


def target(given: Given) -> pauses.Target:
    """Return what a pause is about."""
    return pauses.Target(given["what"], given.get("name") or "")


def pause(conn: Connection[Any], given: Given) -> Any:
    """Pause a queue, a task or everything, until resumed or for a time."""
    lasts: timedelta | None = None if given.get("for") is None else parse_duration("for", given["for"])
    return pauses.pause(conn, target(given), given.get("reason"), given.get("user"), lasts)


def resume(conn: Connection[Any], given: Given) -> Any:
    """End a pause."""
    return pauses.resume(conn, target(given)).row


def show_retention(conn: Connection[Any], given: Given) -> Any:
    """Return how long things are kept."""
    return retention_as_json(retention.settings(conn))


def set_retention(conn: Connection[Any], given: Given) -> Any:
    """Change how long things are kept."""
    values = {n: parse_duration(n, value) if n in RETENTION_TIMES else value for n, value in given.items()}
    return retention_as_json(settings.change_retention(conn, values))


def drain_worker(conn: Connection[Any], given: Given) -> Any:
    """Ask a worker to claim nothing more and to end."""
    return pauses.drain(conn, given["id"], given.get("user"))


def list_workers(conn: Connection[Any], given: Given) -> Any:
    """Return the live workers."""
    return {"workers": charts.list_live_workers(conn)}
