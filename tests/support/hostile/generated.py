"""Statements that a producer or an operator may send, with odd values in a few columns, generated from a seed.

Invariant: the columns come from the grants, so no column that the producer may write is left out. Rows are named by
their place among the producer's own (the newest, the second newest). So the same statements do the same in another
database.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg

from tests.support.fuzz.values import NASTY, WORDS
from tests.support.hostile.victim import TASK

COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute a
WHERE a.attrelid = %(table)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
    AND has_column_privilege(a.attrelid, a.attnum, %(right)s) ORDER BY a.attnum
"""
FUNCTIONS = """
SELECT p.proname::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) t), coalesce(p.proargnames, '{}')
FROM pg_proc p WHERE p.pronamespace = 'pgsched'::regnamespace AND p.prokind = 'f'
    AND has_function_privilege(p.oid, 'EXECUTE') ORDER BY p.oid::regprocedure::text
"""
NEWEST = "(SELECT id FROM pgsched.{table} WHERE owner = current_user ORDER BY id DESC OFFSET {nth} LIMIT 1)"
JOB_NAME = "(SELECT name FROM pgsched.jobs WHERE owner = current_user ORDER BY id DESC OFFSET {nth} LIMIT 1)"
ROWTYPES = {"pgsched.jobs", "pgsched.runs", "pgsched.job_calendars"}
OURS = {"name": "hers"}  # names of limits and queues that operators set begin with this: they concern only alice's work
# The weight of each kind of statement.
KINDS = {"runs": 30, "jobs": 20, "job edits": 8, "calendars": 8, "calendar edits": 3, "dependencies": 8,
         "backfills": 6, "queues": 5, "limits": 5, "calls": 12}  # fmt: skip
MARKERS = ["8998-01-01Z", "8999-01-01Z", "8999-01-01Z", "9000-01-01Z"]
DEEP = 150
NUMBERS = ["0", "1", "2", "9", "10", "100", "1000", "1001", "-1", "32767", "-32768", "2147483647", "-2147483648"]
BIG = [*NUMBERS, "9223372036854775807", "-9223372036854775808"]
VALUES: dict[str, list[str]] = {
    "text": [*NASTY, "a" * 100, "a" * 500, "a" * 4000, "é" * 99, "\u202e" * 3, "%", "a.b", "{0}", "{n}", "\\u0000"],
    "smallint": NUMBERS[:-2],
    "integer": NUMBERS,
    "bigint": BIG,
    "double precision": ["NaN", "Infinity", "-Infinity", "1e308", "-0", "0.5", "1", "0", "1e-300", "2"],
    "numeric": ["NaN", "1e5000", "-1", "0", "1", "0.001"],
    "boolean": ["true", "false"],
    "interval": ["0", "1 microsecond", "1 millisecond", "1 second", "1 hour", "-1 second", "1 month", "10 years",
                 "1 year 1 day", "10 years 1 second", "178000000 years", "2147483647 days", "1 month -30 days",
                 "0.1 seconds"],
    "timestamp with time zone": ["now", "today", "tomorrow", "infinity", "-infinity", "4713-01-01 BC", "1969-12-31",
                                 "1970-01-01Z", "2026-03-29 01:30Z", "8997-12-31 23:59:59Z", "8998-01-01Z",
                                 "8999-01-01Z", "9000-01-01Z", "294276-12-31 23:59:59.999999+00", "yesterday"],
    "date": ["today", "tomorrow", "infinity", "-infinity", "4713-01-01 BC", "1970-01-01", "8999-12-31", "9000-01-01",
             "5874897-12-31", "2026-02-28"],
    "uuid": ["00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "jsonb": ["{}", "[]", "null", "0", '"text"', '{"n": 1e5000}', '{"n": 1e400}', '{"n": -1e-400}',
              '{"a": "{b}", "b": "{a}"}',
              "[" * DEEP + "]" * DEEP, "[" * 201 + "]" * 201, "[" * 3000 + "]" * 3000, '{"a": "\\u001b[31m\\u202e"}',
              '{"": null}', '{"after_jobs": [null]}', '{"after_jobs": [1e5000, -1]}', '"abc"', '{"overlap": true}',
              '{"not_before": "infinity"}', '{"not_before": "31/12/2026 00:00"}', '{"not_before": {"a": 1}}',
              '{"not_before": "9999-99-99T00:00Z"}', '{"trace": 5}',
              '{"trace": {"traceparent": "x"}}', '{"success_codes": [0, 256]}', '{"retry_codes": [1]}',
              json.dumps({"k": "x" * 60_000}), json.dumps({"k": "x" * 1_048_577}), json.dumps(list(range(5000)))],
    "name": ["postgres", "pgsched_owner", "nobody"],
}  # fmt: skip
SCHEDULES = ["@every 1s", "@every 1h", "* * * * * *", "0 3 * * *", "@after 10m", "@every 9999999999d", "@every 0s",
             "@yearly", "0 0 30 2 *", "0 0 29 2 *", "@every", "*/0 * * * *", "TZ=UTC * * * * *", "@reboot", "H H * * *",
             "0-59/7 * * * *", "0 0 L * *", "0 0 * * MON#5"]  # fmt: skip
NAMED: dict[str, list[str]] = {
    **WORDS,
    "schedule": SCHEDULES,
    "task": [TASK, "t", *WORDS["task"]],
    "kind": ["task", "task", *WORDS["kind"]],
    "keep": ['{"any": "1 second"}', '{"dead": "100 years"}', '{"any": "infinity"}', '{"any": "-1 s"}',
             '{"x": "1 d"}', "[]"],
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """One statement.

    `kind`: one of KINDS. `who`: the login that sends it. `columns`: the columns or the function with odd values.
    """

    kind: str
    who: str
    text: str
    values: tuple[str | None, ...]
    columns: tuple[str, ...] = ()

    def send(self, conn: psycopg.Connection[Any]) -> str | None:
        """Send the statement; return its SQLSTATE, None if it was accepted."""
        try:
            with conn.transaction():
                conn.execute(self.text.encode(), self.values)
        except psycopg.Error as error:
            return error.sqlstate or "?"
        return None

    def __str__(self) -> str:
        short = [one if one is None or len(one) < 200 else f"{one[:80]}... ({len(one)})" for one in self.values]
        return f"{self.who}: {self.text} {short}"


class Generator:
    """The statements of one seed. `alice` and `ops`: connections whose grants decide what may be written."""

    def __init__(self, seed: int, alice: psycopg.Connection[Any], ops: psycopg.Connection[Any]) -> None:
        self._random = Random(seed)
        self._n = 0
        tables = {
            "runs": alice,
            "jobs": alice,
            "job_calendars": alice,
            "dependencies": alice,
            "queues": ops,
            "limits": ops,
        }
        self.columns = {table: granted(conn, table, "INSERT") for table, conn in tables.items()}
        self._edits = {table: granted(alice, table, "UPDATE") for table in ("jobs", "job_calendars")}
        self._functions = [one for one in alice.execute(FUNCTIONS).fetchall() if callable_with(one[1])]
        self._makers: dict[str, Callable[[], Statement]] = {
            "runs": self._run, "jobs": self._job, "job edits": self._job_edit, "calendars": self._calendar,
            "calendar edits": self._calendar_edit, "dependencies": self._edge, "backfills": self._backfill,
            "queues": lambda: self._setting("queues"), "limits": lambda: self._setting("limits"), "calls": self._call,
        }  # fmt: skip

    def some(self, n: int) -> list[Statement]:
        """Return the next n statements."""
        kinds = self._random.choices([*KINDS], [*KINDS.values()], k=n)
        return [self._makers[kind]() for kind in kinds]

    def _value(self, kind: str, name: str) -> str | None:
        random = self._random
        if random.random() < 0.06:
            return None
        if kind.endswith("[]"):
            found = [self._value(kind[:-2], name) for _ in range(random.choice((0, 1, 1, 2, 5)))]
            return "{" + ",".join("NULL" if one is None else json.dumps(one, ensure_ascii=False) for one in found) + "}"
        if name in NAMED and (random.random() < 0.7 or kind not in VALUES):
            return random.choice(NAMED[name])
        if kind == "text" and random.random() < 0.2:
            return "".join(
                chr(random.choice((random.randrange(1, 0xD7FF), random.randrange(32, 127)))) for _ in range(9)
            )
        return random.choice(VALUES[kind])

    def _odd(self, table: str, most: int = 3) -> dict[str, tuple[str, str | None]]:
        """Choose a few columns of a table; return the placeholder and the value of each."""
        found = self.columns[table]
        names = self._random.sample(sorted(found), self._random.choice((1, 1, 1, 2, most)))
        return {name: (f"%s::text::{found[name]}", self._value(found[name], name)) for name in names}

    def _insert(self, kind: str, table: str, row: dict[str, tuple[str, str | None]], who: str = "alice") -> Statement:
        odd = self._odd(table)
        for name in OURS.keys() & odd.keys() if who == "ops" else ():
            odd[name] = ("%s::text", f"hers {self._n} {odd[name][1]}")
        whole = {**row, **odd}
        marks = ", ".join(mark for mark, _ in whole.values())
        values = tuple(value for mark, value in whole.values() if "%s" in mark)
        text = f"INSERT INTO pgsched.{table} ({', '.join(whole)}) VALUES ({marks})"
        return Statement(kind, who, text, values, tuple(f"{table}.{name}" for name in odd))

    def _run(self) -> Statement:
        row = {"task": ("%s", self._random.choice((TASK, "t")))}
        if self._random.random() < 0.2:  # like a run that waits for others: the leader reads such rows
            row |= {"state": ("%s", "waiting"), "available_at": ("%s", self._random.choice(MARKERS)),
                    "options": ("%s::text::jsonb", self._random.choice(VALUES["jsonb"]))}  # fmt: skip
        return self._insert("runs", "runs", row)  # type: ignore[arg-type]

    def _job(self) -> Statement:
        self._n += 1
        row = {"name": ("%s", f"hers {self._n}"), "task": ("%s", TASK), "schedule": ("%s", "@every 1h")}
        return self._insert("jobs", "jobs", row)  # type: ignore[arg-type]

    def _calendar(self) -> Statement:
        row = {"job_id": (self._place("jobs"), None), "from_date": ("%s", f"20{self._random.randrange(10, 99)}-05-01"),
               "until_date": ("%s", "2099-05-02")}  # fmt: skip
        return self._insert("calendars", "job_calendars", row)  # type: ignore[arg-type]

    def _setting(self, table: str) -> Statement:
        self._n += 1
        return self._insert(table, table, {"name": ("%s", f"hers {self._n}")}, who="ops")

    def _edit(self, kind: str, table: str, key: str) -> Statement:
        found = self._edits[table]
        names = self._random.sample(sorted(found), self._random.choice((1, 1, 2)))
        change = ", ".join(f"{name} = %s::text::{found[name]}" for name in names)
        values = tuple(self._value(found[name], name) for name in names)
        text = f"UPDATE pgsched.{table} SET {change} WHERE {key} = {self._place('jobs')}"
        return Statement(kind, "alice", text, values, tuple(f"{table}.{name}" for name in names))

    def _job_edit(self) -> Statement:
        return self._edit("job edits", "jobs", "id")

    def _calendar_edit(self) -> Statement:
        return self._edit("calendar edits", "job_calendars", "job_id")

    def _edge(self) -> Statement:
        """Return a statement that enqueues a run with a parent, or one that adds a dependency to an existing run."""
        places = (("%s::bigint", self._random.choice(BIG)), (self._place("runs"), None))
        parent, value = self._random.choice((*places, places[1], places[1]))
        failure = self._random.choice((*WORDS["on_failure"], "x"))
        values = tuple(one for one in (value, failure) if one is not None)
        if self._random.random() < 0.3:
            row = f"({self._place('runs')}, {parent}, %s, %s::text::boolean)"
            text = f"INSERT INTO pgsched.dependencies (run_id, parent_id, on_failure, any_of) VALUES {row}"
            odd = ("dependencies.run_id", "dependencies.parent_id", "dependencies.on_failure", "dependencies.any_of")
            return Statement("dependencies", "alice", text, (*values, self._value("boolean", "any_of")), odd)
        how = self._random.choice(("after", "after_any"))
        text = f"SELECT pgsched.enqueue('{TASK}', {how} => ARRAY[{parent}], on_failure => %s)"
        return Statement("dependencies", "alice", text, values, (f"dependencies.{how}",))

    def _backfill(self) -> Statement:
        instants = [*VALUES["timestamp with time zone"], *["2026-01-01Z", "2026-01-02Z", "2026-05-01Z"] * 5]
        ends = [self._random.choice(instants) for _ in range(2)]
        if self._random.random() < 0.8:
            ends.sort()
        odd = {"mode": self._random.choice(WORDS["mode"]), "max_active": self._random.choice(NUMBERS),
               "reverse": self._random.choice(("true", "false")), "priority": self._random.choice(NUMBERS)}  # fmt: skip
        names = self._random.sample(sorted(odd), self._random.choice((0, 0, 1, 2)))
        more = "".join(f", {name} => %s" for name in names)
        text = f"SELECT pgsched.backfill({JOB_NAME.format(nth=self._nth())}, %s, %s{more})"
        return Statement("backfills", "alice", text, (*ends, *(odd[name] for name in names)), tuple(names))

    def _call(self) -> Statement:
        name, types, names = self._random.choice(self._functions)
        marks, values = [], []
        for kind, argument in zip(types, [*names, *[""] * len(types)], strict=False):
            if kind in ROWTYPES:
                marks.append(f"(SELECT x FROM {kind} x ORDER BY ctid LIMIT 1)")
            elif kind == "bigint" and self._random.random() < 0.6:
                marks.append(self._place("jobs" if argument == "job_id" else "runs"))
            elif argument == "job" and self._random.random() < 0.6:
                marks.append(JOB_NAME.format(nth=self._nth()))
            else:
                marks.append(f"%s::text::{kind}")
                values.append(self._value(kind, argument))
        return Statement("calls", "alice", f"SELECT * FROM pgsched.{name}({', '.join(marks)})", tuple(values), (name,))

    def _place(self, table: str) -> str:
        return NEWEST.format(table=table, nth=self._nth())

    def _nth(self) -> int:
        return self._random.choice((0, 0, 0, 1, 2, 5))


def granted(conn: psycopg.Connection[Any], table: str, right: str) -> dict[str, str]:
    """Return the columns that the connection's user may write, with their types."""
    return dict(conn.execute(COLUMNS, {"table": f"pgsched.{table}", "right": right}).fetchall())


def callable_with(types: Sequence[str]) -> bool:
    """Return whether there are values for all of these types."""
    return all(one in ROWTYPES or one.removesuffix("[]") in VALUES for one in types)


def smallest(found: list[Statement], harms: Callable[[list[Statement]], bool], tries: int) -> list[Statement]:
    """Return the fewest of these statements that still do harm, as far as `tries` attempts can find out.

    Leave out halves, then quarters and so on, as long as the rest does harm.
    """
    parts = 2
    while len(found) > 1 and tries > 0:
        size = max(1, len(found) // parts)
        for start in range(0, len(found), size):
            rest = found[:start] + found[start + size :]
            tries -= 1
            if tries < 0 or (rest and harms(rest)):
                found, parts = (rest if tries >= 0 else found), max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(found), parts * 2)
    return found


def tally(answers: Sequence[tuple[Statement, str | None]]) -> str:
    """Return how many statements of each kind were accepted, and how often each SQLSTATE came."""
    every = Counter(one.kind for one, _ in answers)
    taken = Counter(one.kind for one, state in answers if state is None)
    return f"{ {kind: f'{taken[kind]}/{every[kind]}' for kind in KINDS} } {Counter(state for _, state in answers)}"
