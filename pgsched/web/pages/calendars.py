"""Changes of a job's excluded dates.

Both the first and the last date count, in the job's time zone.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from starlette.requests import Request

from pgsched.core.input_values import parse_dates
from pgsched.core.schedule.calendar import describe_dates
from pgsched.db.connection.connect import Connection
from pgsched.errors import InputError
from pgsched.services.jobs import excluded_dates
from pgsched.web.pages.responses import Redirect, field_text, job_url


def field_dates(request: Request) -> tuple[date, date]:
    """Return the first and the last date; without a last date they are the same.

    Raises InputError for texts that are not dates.
    """
    first, last = field_text(request, "from"), field_text(request, "to")
    if first is None:
        raise InputError("from: name the first date", "from")
    return parse_dates(f"{first}..{last or first}")


def exclude(request: Request, conn: Connection[Any]) -> Redirect:
    """Exclude the dates: the job does not run on them."""
    name, dates = request.path_params["name"], field_dates(request)
    excluded_dates.exclude(conn, name, *dates, field_text(request, "reason"))
    return Redirect(
        f"{job_url(name)}#dates", f"It does not run: {describe_dates(*dates, field_text(request, 'reason'))}."
    )


def allow(request: Request, conn: Connection[Any]) -> Redirect:
    """Allow the dates again."""
    name, dates = request.path_params["name"], field_dates(request)
    excluded_dates.allow(conn, name, *dates)
    return Redirect(f"{job_url(name)}#dates", f"It runs again: no {describe_dates(*dates, None)} any more.")
