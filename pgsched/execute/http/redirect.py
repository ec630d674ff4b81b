"""Redirects of HTTP runs: how the next request follows from the answer.

Invariant: a redirect is a new request, checked like the first; the job's own headers go to one origin only.

The new address is checked when the connection is opened (client.py). Status 303, status 302, and status 301 after a
POST turn the method into GET, as in other clients.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urljoin, urlsplit

from pgsched.execute.http.allowlist import Forbidden
from pgsched.execute.http.request import Ask, url_problem

STATUSES = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 5


def follow_redirect(ask: Ask, status: int, location: str) -> Ask:
    """Return the request that follows a redirect.

    Raises Forbidden where the request must not be sent.
    """
    try:
        url = urljoin(ask.url, location)
        problem = url_problem(url)
        before, after = origin(ask.url), origin(url)
    except ValueError as error:
        raise Forbidden(f"redirect to {location[:200]!r}: {error}") from error
    if problem is not None:
        raise Forbidden(f"redirect to {location[:200]!r}: {problem.removeprefix('task: ')}")
    if before[0] == "https" and after[0] == "http":
        raise Forbidden(f"redirect to {location[:200]!r}: from https to http")
    lost = ask.job_headers if before != after else frozenset()
    method = redirect_method(ask.method, status)
    if method != ask.method:
        lost |= {"content-type"}
    return replace(
        ask,
        url=url,
        method=method,
        content=None if method != ask.method else ask.content,
        job_headers=ask.job_headers - lost,
        headers={name: value for name, value in ask.headers.items() if name.lower() not in lost},
    )


def redirect_method(method: str, status: int) -> str:
    """Return the method of the request that follows a redirect with this status."""
    if (status in (302, 303) and method != "HEAD") or (status == 301 and method == "POST"):
        return "GET"
    return method


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of a URL. Raises ValueError."""
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower())
