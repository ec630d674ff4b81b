"""The request that an HTTP run describes: reads and checks the URL and the arguments before anything is sent.

Invariant: a wrong request is refused before a connection is opened.

The database refuses the same values at INSERT with the same words (migrations/1000_initial/22_kinds.sql). A wrong
request that still reaches a worker fails for good.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from pgsched.core.model import Claim, Unreadable
from pgsched.errors import InputError
from pgsched.telemetry import tracing

URL_CHARACTERS = 8192
HEADER_CHARACTERS = 8192
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 10.0, 60.0
CONNECT_MOST_S, READ_MOST_S = 600, 86_400
OURS = frozenset({
    "accept-encoding", "connection", "content-length", "expect", "host", "idempotency-key", "keep-alive", "te",
    "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:\\%<>\"'`{|}^]+)(?::([0-9]{1,5}))?")
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as the job describes it, with the statuses that count as success.

    - `job_headers`: names of the job's own headers, in lower case.
    - `expect`: statuses (200) and classes of statuses ("2xx") that are a success.
    """

    url: str
    method: str
    headers: dict[str, str]
    job_headers: frozenset[str]
    content: bytes | None
    expect: frozenset[int | str]
    connect_timeout_s: float
    read_timeout_s: float
    follow_redirects: bool

    def expects(self, status: int) -> bool:
        """Check whether this status is a success."""
        return status in self.expect or f"{status // 100}xx" in self.expect


def read_request(claim: Claim) -> Ask:
    """Return the request of a claim, with the headers that identify the run. Raises InputError."""
    args = {} if claim.args == [] else claim.args
    if isinstance(args, Unreadable):
        raise InputError(f"args: {args.reason}", "args")
    if problem := url_problem(claim.task) or args_problem(args):
        raise InputError(problem, problem.partition(":")[0])
    content, content_type = _content(args)
    own = {name.lower() for name in args.get("headers", {})}
    headers = {} if content_type is None or "content-type" in own else {"Content-Type": content_type}
    return Ask(
        url=_with_params(claim.task, args.get("params", {})),
        method=args.get("method", "POST").upper(),
        headers=headers | tracing.current_headers() | args.get("headers", {}) | identity_headers(claim),
        job_headers=frozenset(own),
        content=content,
        expect=frozenset(args.get("expect", ["2xx"])),
        connect_timeout_s=args.get("connect_timeout_s", CONNECT_TIMEOUT_S),
        read_timeout_s=args.get("read_timeout_s", READ_TIMEOUT_S),
        follow_redirects=args.get("follow_redirects", False),
    )


def identity_headers(claim: Claim) -> dict[str, str]:
    """Return the headers that identify the run to the receiver.

    The Idempotency-Key is the same for every attempt of the run.
    """
    key = claim.outside_name or str(claim.id)
    who = {"Idempotency-Key": key, "X-Pgsched-Run-Id": str(claim.id), "X-Pgsched-Attempt": str(claim.attempt)}
    if claim.scheduled_at is not None:
        who["X-Pgsched-Scheduled-At"] = claim.scheduled_at.isoformat()
    if claim.interval_start is not None:
        who["X-Pgsched-Interval-Start"] = claim.interval_start.isoformat()
    return who


def _content(args: dict[str, Any]) -> tuple[bytes | None, str | None]:
    if "json" in args:
        return json.dumps(args["json"], ensure_ascii=False, separators=(",", ":")).encode(), "application/json"
    if "body" in args:
        return args["body"].encode(), "text/plain; charset=utf-8"
    return None, None


def _with_params(url: str, params: dict[str, Any]) -> str:
    """Return the URL with these parameters added to its own query."""
    if not params:
        return url
    address, mark, fragment = url.partition("#")
    texts = {name: [_text(item) for item in (value if isinstance(value, list) else [value])]
             for name, value in params.items()}  # fmt: skip
    separator = "&" if "?" in address else "?"
    return f"{address}{separator}{urlencode(texts, doseq=True)}{mark}{fragment}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def url_problem(url: str) -> str | None:
    """Return why a job may not ask for this URL, or None if it may."""
    if len(url) > URL_CHARACTERS:
        return f"task: {len(url)} characters, at most {URL_CHARACTERS} are allowed in a URL"
    if re.search(r"[\x00-\x20\x7f]", url):
        return "task: a URL must not contain spaces or control characters"
    found = re.match(r"(?i)https?://([^/?#]*)", url)
    if found is None:
        return "task: a URL must begin with http:// or https://"
    if "@" in found[1]:
        return "task: a URL must not contain a user name or password; args.headers may hold Authorization"
    host = HOST.fullmatch(found[1])
    if host is None:
        return "task: the URL has no valid host"
    if host[1] is not None and not 1 <= int(host[1]) <= 65535:
        return f"task: port {host[1]} is out of range 1-65535"
    return None


def args_problem(args: Any) -> str | None:
    """Return why these arguments cannot be sent, with the path of the wrong value, or None if they can."""
    if not isinstance(args, dict):
        return "args: a http job takes a JSON object"
    for key, value in args.items():
        if key not in CHECKS:
            return f"args.{key}: no such key; known are {', '.join(CHECKS)}"
        if problem := CHECKS[key](value):
            return f"args.{key}{problem}"
    if "json" in args and "body" in args:
        return "args.body: not together with json"
    return None


def _method(value: Any) -> str | None:
    good = isinstance(value, str) and re.fullmatch(r"[A-Za-z]{1,20}", value)
    return None if good and value.upper() not in ("CONNECT", "TRACE") else ": expected a method such as POST"


def _headers(value: Any) -> str | None:
    if not isinstance(value, dict):
        return ": expected an object of text"
    return next((problem for name, text in value.items() if (problem := _header(name, text))), None)


def _header(name: str, text: Any) -> str | None:
    if not HEADER_NAME.fullmatch(name):
        return f": {json.dumps(name[:60], ensure_ascii=False)} is not the name of a header"
    if name.lower() in OURS or name.lower().startswith(("x-pgsched-", "proxy-")):
        return f": {name} is set by pgsched itself"
    if not isinstance(text, str):
        return f".{name}: expected text"
    if len(text) > HEADER_CHARACTERS:
        return f".{name}: {len(text)} characters, at most {HEADER_CHARACTERS} are allowed"
    if not re.fullmatch(r"[\x20-\x7e]*", text) or text != text.strip(" "):
        return f".{name}: must be printable ASCII and not begin or end with a space"
    return None


def _params(value: Any) -> str | None:
    if not isinstance(value, dict):
        return ": expected an object"
    for name, item in value.items():
        for one in item if isinstance(item, list) else [item]:
            if not isinstance(one, (str, int, float)):
                return f".{name}: expected text, a number, true or false, or an array of these"
    return None


def _expect(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return ": expected an array of statuses"
    for item in value:
        number = isinstance(item, int) and not isinstance(item, bool) and 200 <= item <= 599
        if not number and not (isinstance(item, str) and re.fullmatch("[2-5]xx", item)):
            return (
                f': {json.dumps(item, ensure_ascii=False)[:60]} is neither a status 200-599 nor a class such as "2xx"'
            )
    return None


def _seconds(most: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0.001 <= value <= most
        return None if good else f": expected a number of seconds, 0.001-{most}"

    return check


CHECKS: dict[str, Callable[[Any], str | None]] = {
    "method": _method,
    "headers": _headers,
    "params": _params,
    "json": lambda value: None,
    "body": lambda value: None if isinstance(value, str) else ": expected text",
    "expect": _expect,
    "connect_timeout_s": _seconds(CONNECT_MOST_S),
    "read_timeout_s": _seconds(READ_MOST_S),
    "follow_redirects": lambda value: None if isinstance(value, bool) else ": expected true or false",
}
