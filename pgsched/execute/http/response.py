"""The outcome of an HTTP answer: success or failure, the result to store, and when to retry.

Invariant: every answer of a server becomes an outcome of limited size that the database can store.

A status that the job does not expect is a failure. The failure is retried unless the status is a 4xx that blames the
request; 408, 425 and 429 are retried. A waiting time that the server asks for is measured by the server's clock, never
by this machine's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from pgsched.app.signals import ERROR_CHARACTERS
from pgsched.core import payload
from pgsched.core.model import Outcome, Result
from pgsched.core.text import replace_unstorable

BODY_BYTES = 64 * 1024
LOG_CHARACTERS = 8 * 1024
HEADER_CHARACTERS = 500
KEPT_HEADERS = ("content-type", "content-encoding", "content-length", "date", "etag", "last-modified", "location",
        "retry-after", "x-request-id")  # fmt: skip
RETRIED_STATUSES = (408, 425, 429)
ASKS_TO_WAIT = (429, 503)
LONGEST_WAIT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: at most BODY_BYTES of the body; `cut`: the body was longer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool


def outcome_of_answer(answer: Answer, *, expected: bool) -> Outcome:
    """Return the outcome of an answered request; `expected`: the job counts this status as a success."""
    if expected:
        return Outcome(Result.SUCCEEDED, value=result_of_answer(answer))
    text = _text(answer)
    first_line = (
        next((line.strip()[:200] for line in text.splitlines() if line.strip()), "") if _is_text(answer) else ""
    )
    error = f"HTTP {answer.status} {status_phrase(answer.status)}".rstrip()
    error = f"{error}: {first_line}" if first_line else error
    retry = not 400 <= answer.status <= 499 or answer.status in RETRIED_STATUSES
    return Outcome(
        Result.FAILED,
        error=replace_unstorable(error)[:ERROR_CHARACTERS],
        log_tail=text[:LOG_CHARACTERS] or None,
        retry=retry,
        retry_in=retry_after(answer),
    )


def result_of_answer(answer: Answer) -> dict[str, Any]:
    """Return the result to store with the run."""
    headers = {
        name: replace_unstorable(answer.headers[name][:HEADER_CHARACTERS])
        for name in KEPT_HEADERS
        if name in answer.headers
    }
    found: dict[str, Any] = {"status": answer.status, "headers": headers, "body": _body(answer)}
    return found | {"body_cut": True} if answer.cut else found


def status_phrase(status: int) -> str:
    """Return the standard phrase of a status, not the server's own words, which may be any text."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _body(answer: Answer) -> Any:
    """Return the body as JSON where it is declared as JSON and can be stored, else as text; None where it is empty."""
    if not answer.body:
        return None
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if (kind == "application/json" or kind.endswith("+json")) and not answer.cut:
        try:
            found = json.loads(answer.body)
            payload.encode(found)
        except (ValueError, RecursionError):
            return _text(answer)
        return found
    return _text(answer)


def _text(answer: Answer) -> str:
    return replace_unstorable(answer.body.decode("utf-8", "replace"))


def _is_text(answer: Answer) -> bool:
    """Check whether the first line of the body may stand in an error: the body is neither HTML nor compressed."""
    return "html" not in answer.headers.get("content-type", "").lower() and "content-encoding" not in answer.headers


def retry_after(answer: Answer) -> timedelta | None:
    """Return how long the server asks to wait, at most one day; None where it asks for no wait."""
    text = answer.headers.get("retry-after", "").strip()
    if answer.status not in ASKS_TO_WAIT or not text:
        return None
    if text.isascii() and text.isdigit():
        wait = timedelta(seconds=int(text[:9])) if len(text) < 9 else LONGEST_WAIT
    else:
        try:
            wait = parsedate_to_datetime(text) - parsedate_to_datetime(answer.headers.get("date", ""))
        except (ValueError, TypeError, OverflowError):  # one of them is no date, or only one of them has a time zone
            return None
    return min(wait, LONGEST_WAIT) if wait > timedelta(0) else None
