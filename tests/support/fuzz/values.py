"""Hostile values for every type that a statement may take, as the text that PostgreSQL reads.

Invariant: each text is a valid value of its type. So it is pgsched, not PostgreSQL, that refuses a value.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NASTY = [
    "",
    " ",
    "'",
    '"',
    "%",
    "%s",
    "\\",
    "{}",
    "{",
    "}",
    "{args.x}",
    "{args}",
    "$1",
    "$$",
    ";",
    "--",
    "a:b",
    "job:1",
    "job",
    "job:x",
    "\t",
    "\n",
    "\x01",
    "\x1b[31m",
    "\u202e",
    "\u2028",
    "😀",
    "é",
    "\ufeff",
    "a" * 101,
    "a" * 201,
    "a" * 501,
    "a" * 70_000,
    "DROP TABLE pgsched.runs",
    "null",
    "NaN",
    "1e400",
    "-1",
    "default",
    "pg_catalog.now()",
]
WORDS = {
    "kind": ["task", "command", "shell", "sql", "http", "PYTHON"],
    "task": ["t", "echo", "SELECT 1", "https://example.org/x", "http://[::1", "http://a b", "ftp://x", "/bin/true"],
    "overlap": ["allow", "skip", "buffer_one", "buffer_all", "replace", "terminate"],
    "catch_up": ["latest", "skip", "earliest", "all"],
    "backoff": ["exponential", "fixed", "linear"],
    "resume_from": ["now", "last", "pause"],
    "on_conflict": ["return", "reject", "replace", "keep_time"],
    "unique_scope": [
        "while_active",
        "bucket(1 hour)",
        "bucket(1 month)",
        "bucket(infinity)",
        "bucket(-1 s)",
        "bucket(x)",
        "bucket()",
        "bucket(290000 years)",
        "bucket(1000000 days)",
        "bucket(0.5 s)",
    ],
    "on_failure": ["cancel", "run_anyway", "wait"],
    "on_full": ["reject", "shed_oldest"],
    "mode": ["run", "record", "all", "missed"],
    "what": ["all", "queue", "task", "limit"],
    "queue": ["default", "limited", "full", "none"],
    "job": ["every", "once", "held", "after", "none"],
    "name": ["every", "limited", "default", "full", "a:b"],
    "unique_key": ["taken", "free"],
    "key": ["taken", "free", "kept"],
    "idempotency_key": ["kept", "free"],
    "concurrency_key": ["limited", "limited:{args.x}", "{args.x.y.z}", "{args.}", "{nothing}", "a:b:c"],
    "state": ["queued", "scheduled", "waiting", "running", "succeeded", "dead", "cancelled", "skipped", "missed"],
    "origin": ["enqueue", "schedule", "manual", "backfill"],
    "timezone": [
        "UTC",
        "Europe/Berlin",
        "localtime",
        "EST5EDT",
        "posix/UTC",
        "right/UTC",
        "europe/berlin",
        "Nowhere/Land",
        "+02:00",
    ],
}

hostile = st.one_of(
    st.sampled_from(NASTY), st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30)
)
fields = st.sampled_from(
    [
        "*",
        "*/5",
        "0",
        "59",
        "60",
        "1-5",
        "5-1",
        "a",
        "MON",
        "mon-fri",
        "L",
        "LW",
        "15W",
        "5#3",
        "5L",
        "1,2,3",
        "*/0",
        "?",
        "H",
        "1/2",
        "-1",
        "0-59/7",
        "99999999999999999999",
        "٣",
        "1,,2",
        ",",
        "/",
        "#",
        "7",
        "FRI-SUN",
        "2#9",
    ]
)
schedules = st.one_of(
    st.lists(fields, min_size=4, max_size=7).map(" ".join),
    st.sampled_from(
        [
            "@daily",
            "@yearly",
            "@reboot",
            "@every 1s",
            "@every 90m",
            "@every 0s",
            "@every 9999999999d",
            "@after 10m",
            "@every",
            "@after -1s",
            "@EVERY 1h",
            "@every 1h30m",
            "0 0 30 2 *",
            "@after 99999999999999999999s",
            "TZ=UTC * * * * *",
        ]
    ),
    hostile,
)
wholes = st.one_of(st.sampled_from([-1, 0, 1, 2, 9, 10, 1000, 1001]), st.integers(-5, 30))
intervals = st.one_of(
    st.sampled_from(
        [
            "0",
            "1 microsecond",
            "1 second",
            "-1 second",
            "1 month",
            "10 years",
            "10 years 1 second",
            "infinity",
            "-infinity",
            "178000000 years",
            "-178000000 years",
            "2147483647 days",
            "1 month -30 days",
            "9223372036854775 milliseconds",
        ]
    ),
    st.builds(
        lambda d, s: f"{d} days {s} seconds",
        st.integers(-100_000, 100_000),
        st.floats(-1e6, 1e6).map(lambda s: f"{s:.6f}"),
    ),
)
instants = st.one_of(
    st.sampled_from(
        [
            "now",
            "infinity",
            "-infinity",
            "4713-01-01 BC",
            "294276-12-31 23:59:59.999999+00",
            "epoch",
            "1969-12-31",
            "9000-01-01Z",
            "8999-12-31 23:59:59.999999Z",
            "8998-01-01Z",
            "2026-03-29 01:30Z",
            "today",
            "0001-01-01",
            "1900-01-01Z",
        ]
    ),
    st.datetimes().map(lambda at: at.isoformat()),
)
dates = st.one_of(
    st.sampled_from(["infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "1969-12-31", "8999-12-31", "today"]),
    st.dates().map(str),
)
floats = st.one_of(
    st.sampled_from(["NaN", "Infinity", "-Infinity", "1e308", "-0", "0.5", "1", "0"]), st.floats(-2, 2).map(repr)
)
plain = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False), plain
)
known = st.sampled_from(
    [
        "x",
        "args",
        "argv",
        "headers",
        "method",
        "env",
        "cwd",
        "dsn",
        "params",
        "body",
        "json",
        "timeout",
        "stdin",
        "query",
        "success",
        "follow_redirects",
        "status",
        "on",
        "parameters",
        "database",
    ]
)
documents = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(known, plain), inner, max_size=4)),
    max_leaves=8,
)


def integer(bits: int) -> st.SearchStrategy[str]:
    """Return a strategy for integers of this many bits; small ones and the extremes are more frequent."""
    edge = 2 ** (bits - 1)
    return st.one_of(wholes, st.integers(-edge, edge - 1), st.sampled_from([-edge, edge - 1])).map(str)


def array(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return a strategy for arrays, also with NULLs: of one dimension, of two, and with bounds of their own."""

    def text(found: list[str | None]) -> str:
        quote = [
            ("NULL" if one is None else '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"') for one in found
        ]
        return "{" + ",".join(quote) + "}"

    def with_bounds(found: list[str | None], first: int) -> str:
        return f"[{first}:{first + len(found) - 1}]={text(found)}"

    members = st.lists(st.one_of(st.none(), items), max_size=5)
    flat = members.map(text)
    bound = st.builds(with_bounds, members.filter(len), st.sampled_from([-3, 0, 2, 2**31 - 6]))
    return st.one_of(flat, flat.map(lambda one: "{" + one + "," + one + "}" if one != "{}" else one), bound)


TYPES: dict[str, st.SearchStrategy[str]] = {
    "text": hostile,
    "name": st.one_of(
        st.sampled_from(["postgres", "nobody", "pg_read_all_data", ""]),
        hostile.map(lambda t: t.encode()[:60].decode(errors="ignore")),
    ),
    "smallint": integer(16),
    "integer": integer(32),
    "bigint": st.one_of(st.integers(1, 25).map(str), integer(64)),
    "numeric": st.one_of(floats, integer(64)),
    "double precision": floats,
    "boolean": st.sampled_from(["true", "false"]),
    "interval": intervals,
    "timestamp with time zone": instants,
    "timestamp without time zone": instants,
    "date": dates,
    "time without time zone": st.one_of(st.sampled_from(["24:00", "00:00", "23:59:60", "now"]), st.times().map(str)),
    "jsonb": st.one_of(st.dictionaries(st.one_of(known, plain), documents, max_size=4), documents).map(json.dumps),
    "uuid": st.one_of(st.just("00000000-0000-0000-0000-000000000001"), st.uuids().map(str)),
    "record": st.just("()"),
}


def value(kind: str, name: str) -> st.SearchStrategy[str | None]:
    """Return a strategy for an argument or column of this type and name: its text, or None for NULL."""
    if kind.endswith("[]"):
        found: st.SearchStrategy[Any] = array(
            value(kind[:-2], "").filter(lambda one: one is not None and "\x00" not in one)
        )
    elif name == "schedule":
        found = schedules
    elif name in WORDS:
        found = st.one_of(st.sampled_from(WORDS[name]), st.sampled_from(WORDS[name]), TYPES[kind])
    else:
        found = TYPES[kind]
    return st.one_of(found, found, found, st.none())
