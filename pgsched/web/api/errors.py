"""Errors of the API: one JSON shape for every refusal, whichever part of the console refuses.

Invariant: an answer below /api with a status of 400 or more is `{"error": {"code", "message", "field"?, "hint"?}}`.
`code` is one word for programs. It never changes its meaning; the message may.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from pgsched.errors import (
    AlreadyEnqueued,
    DatabaseReadOnly,
    DatabaseUnreachable,
    InputError,
    LockTimeout,
    NotFound,
    NotPermitted,
    PgschedError,
    QueueFull,
    SchemaTooNew,
    SchemaTooOld,
    TaskError,
    WrongFleet,
)


class KeyReused(InputError):
    """An Idempotency-Key was sent before with another request."""


class TooManyWaiting(PgschedError):
    """Too many requests wait for the end of a run."""


# Class of an error -> status, code, and after how many seconds to try again. The first that fits counts.
ERRORS: tuple[tuple[type[PgschedError], int, str, int | None], ...] = (
    (NotFound, 404, "not_found", None),
    (KeyReused, 422, "idempotency_key_reused", None),
    (InputError, 422, "invalid", None),
    (TaskError, 422, "invalid", None),
    (NotPermitted, 403, "forbidden", None),
    (AlreadyEnqueued, 409, "already_enqueued", None),
    # 429 and not 503: it is the limit of one queue, and no sign that the console or the database is unwell.
    (QueueFull, 429, "queue_full", 5),
    (TooManyWaiting, 503, "too_many_waiting", 5),
    (LockTimeout, 503, "locked", 1),
    (DatabaseUnreachable, 503, "database_unreachable", 5),
    (DatabaseReadOnly, 503, "database_read_only", 5),
    (SchemaTooOld, 503, "wrong_schema", None),
    (SchemaTooNew, 503, "wrong_schema", None),
    (WrongFleet, 503, "wrong_fleet", None),
    (PgschedError, 500, "failed", None),
)
# Status -> code, where there is no error of pgsched: the request did not reach an operation, or there is a bug.
CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    429: "too_many_requests",
    500: "internal",
    503: "unavailable",
}
MEANINGS = {
    "already_enqueued": "on_conflict is reject, and a run has the unique key: its address is in `Location`",
    "bad_request": "the request cannot be read",
    "database_read_only": "the database takes no writes",
    "database_unreachable": "no server of the database answers",
    "failed": "the database refuses the statement",
    "forbidden": "this token may not do that, or the request comes from another site's page",
    "idempotency_key_reused": "the `Idempotency-Key` was used for another task or other arguments. The draft of the"
    " IETF has 422 for this; its 409 is for a key whose first request goes on, and here the second waits for the first",
    "internal": "a bug in pgsched; the console's log shows where",
    "invalid": "a parameter, a field or an argument is wrong",
    "locked": "another transaction holds what this needs",
    "method_not_allowed": "the address has no such method; `Allow` has those that it has",
    "not_found": "there is no such address, job, run or other row",
    "queue_full": "the queue has as many runs as its `max_depth` allows. It is 429 and not 503, because it is the limit"
    " of one queue and not an outage",
    "too_large": "the body has more than 4 MiB",
    "too_many_requests": "too many wrong tokens from this address",
    "too_many_waiting": "too many requests wait for the end of a run",
    "too_slow": "the body did not arrive in time",
    "unauthorized": "there is no token, or it is not known here",
    "unavailable": "too much is going on at once",
    "unsupported_media_type": "the body is not sent as `application/json`",
    "wrong_fleet": "the database belongs to another fleet",
    "wrong_host": "the console does not answer to that host name",
    "wrong_schema": "the schema of the database is older or newer than the console: migrate or upgrade",
}
ALL_CODES = sorted(MEANINGS)
HINTS = {
    401: "send the header Authorization: Bearer TOKEN",
    404: "GET /api/openapi.json lists every address",
    415: "send the header Content-Type: application/json",
}
UNKNOWN_OUTCOME = (
    "it is not known whether the change was made: look before you repeat it. A POST of a run with an Idempotency-Key"
    " is safe to repeat"
)


def status_of(error: PgschedError) -> int:
    """Return the HTTP status of an error."""
    return kind_of(error)[0]


def kind_of(error: PgschedError) -> tuple[int, str, int | None]:
    """Return status, code, and after how many seconds to try again."""
    return next(kind for cls, *kind in ERRORS if isinstance(error, cls))  # type: ignore[return-value]


def error_json(
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    *,
    field: str | None = None,
    hint: str | None = None,
) -> Response:
    """Return a refusal in the one shape of the API.

    Characters beyond ASCII are escaped: an error may repeat half a surrogate pair, which UTF-8 cannot encode.
    """
    error: dict[str, Any] = {"code": code, "message": message}
    error |= {name: text for name, text in (("field", field), ("hint", hint)) if text is not None}
    return Response(json.dumps({"error": error}), status, dict(headers or {}), media_type="application/json")


def status_error(status: int, message: str, headers: Mapping[str, str]) -> Response:
    """Return the refusal of a request that no operation has seen."""
    return error_json(status, CODES.get(status, f"http_{status}"), message, headers, hint=HINTS.get(status))


def operation_error(error: PgschedError, method: str, prefix: str) -> Response:
    """Return the refusal of an operation.

    `prefix`: the path of the API, for the address of a run that is there already.
    """
    status, code, again_s = kind_of(error)
    headers = {} if again_s is None else {"Retry-After": str(again_s)}
    if isinstance(error, AlreadyEnqueued):
        headers["Location"] = f"{prefix}/runs/{error.run_id}"
    hint = UNKNOWN_OUTCOME if isinstance(error, DatabaseUnreachable) and method not in ("GET", "HEAD") else None
    return error_json(status, code, str(error), headers, field=getattr(error, "field", None), hint=hint)
