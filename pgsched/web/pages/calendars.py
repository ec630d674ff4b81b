"""Changes of a job's excluded dates.

Both the first and the last date count, in the job's time zone.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from starlette.requests import Request

from pgsched.core.input_values import span_of
from pgsched.core.schedule.calendar import said
from pgsched.db.connection.connect import Connection
from pgsched.errors import InputError
from pgsched.services.jobs import excluded_dates
from pgsched.web.pages.responses import Done, given, job_url


def asked(request: Request) -> tuple[date, date]:
    """Return the first and the last date; without a last date they are the same.

    Raises InputError for texts that are not dates.
    """
    first, last = given(request, "from"), given(request, "to")
    if first is None:
        raise InputError("from: name the first date", "from")
    return span_of(f"{first}..{last or first}")


def exclude(request: Request, conn: Connection[Any]) -> Done:
    """Exclude the dates: the job does not run on them."""
    name, dates = request.path_params["name"], asked(request)
    excluded_dates.exclude(conn, name, *dates, given(request, "reason"))
    return Done(f"{job_url(name)}#dates", f"It does not run: {said(*dates, given(request, 'reason'))}.")


def allow(request: Request, conn: Connection[Any]) -> Done:
    """Allow the dates again."""
    name, dates = request.path_params["name"], asked(request)
    excluded_dates.allow(conn, name, *dates)
    return Done(f"{job_url(name)}#dates", f"It runs again: no {said(*dates, None)} any more.")
