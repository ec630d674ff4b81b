"""`pgsched doctor`: what is wrong with the running system, who is to blame, and what to do.

The rule: everything that `check` looks at, then what only shows while work goes on. A failure holds work up or loses
it; a warning will, or may. It writes nothing, each question is bounded, and none depends on another's answer: who is in
the way is asked first, of the server's own views alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pgsched
from pgsched.core.model import Row
from pgsched.core.schedule.zones import tzdata_version
from pgsched.db.connection import pooler
from pgsched.db.connection.connect import Connection, connect
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.leader import set_aside
from pgsched.db.queries.reports import inspection, live
from pgsched.errors import NotPermitted, PgschedError
from pgsched.services import check
from pgsched.services.check import Finding, fail, ok, warn
from pgsched.services.status import status

PINNED_WARN_S, PINNED_FAIL_S = 60.0, 3600.0
WAITS_S = 2.0
SKEW_S = 5.0
NOTIFY_FULL = 0.1
TREND_S = 1.5
MOST_DEAD = 3.0  # times what autovacuum comes for
FEW_DEAD = 50_000
LOST_S = 600.0
LOCK_TIMEOUT_MS = 1000  # what is locked is known by then
OWN_SESSIONS = "this role sees only its own sessions"
Check = tuple[str, Callable[[Connection[Any]], Iterable[Finding]]]


def doctor(flag: str | None, environ: Mapping[str, str] | None = None, trend_s: float | None = None) -> list[Finding]:
    """Look at the settings, the database, and the work that goes on in it. Takes `trend_s` seconds (None: TREND_S) and
    a little."""
    dsn = check.reachable(flag, environ)
    blockers = [] if dsn is None else looked(dsn, SESSIONS)
    found = check.check(flag, environ)
    if dsn is None or check.exit_code(found):
        known = {one.name for one in found if one.level != "ok"}
        return found + [one for one in blockers if one.level != "ok" and one.name not in known]
    return (
        found
        + blockers
        + looked(dsn, (*WORK, ("vacuum", partial(vacuum, trend_s=TREND_S if trend_s is None else trend_s))))
    )


def looked(dsn: str, checks: Iterable[Check]) -> list[Finding]:
    """What these checks find on a connection of their own. Where there is none, `check` says why."""
    try:
        with connect(dsn, purpose="doctor", timeout_s=20, settings={"lock_timeout": str(LOCK_TIMEOUT_MS)}) as conn:
            return list(each(conn, checks))
    except PgschedError as error:
        return [fail("connection", error)]


def each(conn: Connection[Any], checks: Iterable[Check]) -> Iterator[Finding]:
    """Every check by itself: one that fails, or waits in vain for a lock, says so, and the others go on."""
    for name, ask in checks:
        if conn.closed:
            yield wrong(name, "not checked: the connection was lost")
            continue
        try:
            yield from list(ask(conn))
        except NotPermitted as error:
            yield warn(name, f"unknown: {error}")
        except Exception as error:
            yield wrong(name, f"not checked: {first_line(error)}")


def living(conn: Connection[Any]) -> Iterator[Finding]:
    """Everything that can be seen at one moment."""
    yield from each(conn, (*SESSIONS, *WORK))


def rights(conn: Connection[Any]) -> Iterator[Finding]:
    """What is not seen because of a missing grant must not look as if it were not there."""
    if not sees_all(conn):
        yield warn("rights", f"{OWN_SESSIONS}: GRANT pg_monitor TO it (or pg_read_all_stats)")


def sees_all(conn: Connection[Any]) -> bool:
    """May this role see what other roles' sessions do?"""
    return bool(inspection.replication(conn)["all_queries"])


def exit_code(found: list[Finding], strict: bool = False) -> int:
    """0 if nothing failed, nor, if `strict`, was warned of; else the code of the first failure, 1 for a warning."""
    warned = strict and any(finding.level == "warn" for finding in found)
    return check.exit_code(found) or int(warned)


def wrong(name: str, text: str) -> Finding:
    """Work is held up, or lost."""
    return fail(name, PgschedError(text))


def shown(row: Row) -> str:
    """Who a session is and what it does."""
    parts = [f"pid {row['pid']}", f"user {row['who']}", row.get("application") or row.get("by"), row["state"]]
    query = " ".join((row["query"] or "").split())
    return ", ".join(str(part) for part in parts if part) + (f": {query[:120]}" if query else "")


def work(conn: Connection[Any]) -> Iterator[Finding]:
    """What `status` says: problems and notes, each with what to do."""
    found = status(conn)
    for problem in found.findings:
        yield (warn if problem.note else wrong)("work", f"{problem.text}; {problem.cure}")
    if found.healthy:
        yield ok("work", "nothing is known to hold work up")


def locks(found: list[Row]) -> Iterator[Finding]:
    """Who has locked whole tables of ours?"""
    for row in found:
        age = "" if row["held_s"] is None else f" for {row['held_s']:.0f} s"
        text = f"{row['tables']}: locked{age} ({row['mode']}) by {shown(row)}: whoever uses them waits"
        yield wrong("blocked", f"{text}; to end it: SELECT pg_terminate_backend({row['pid']})")


def leader(holders: list[Row]) -> Iterator[Finding]:
    """Is the lock that makes a leader held by one, and does it move?"""
    for row in holders:
        ours = row["leads"] or (row["application"] or "").startswith("pgsched leader")
        if not ours and row["lock"] == "leader":
            text = f"the lock by which candidates wait is held by another session ({shown(row)})"
            yield warn("leader", f"{text}: leaders do without it, and follow each other more slowly; end that session")
        elif row["lock"] == "fence" and (row["held_s"] or 0) > WAITS_S:
            text = f"the leader's transaction has gone on for {row['held_s']:.0f} s ({shown(row)})"
            yield wrong("leader", f"{text}: nothing is planned meanwhile")


def undone(conn: Connection[Any]) -> Iterator[Finding]:
    """A producer sees in `status` that a duty fails, and not with whose row."""
    with contextlib.suppress(NotPermitted):
        yield from left_undone(set_aside.seen(conn))


def left_undone(found: list[Row]) -> Iterator[Finding]:
    """With which rows does the leader fail, and which of its duties fail as a whole?"""
    for row in found:
        again = f"tried again in {max(0.0, row['in_s']):.0f} s"
        if row["row_id"] in ("", "session"):
            what = "has failed" if not row["row_id"] else "has cost the leader its session"
            text = f'the leader\'s duty "{row["duty"]}" {what} {row["tries"]} times, for {row["for_s"]:.0f} s'
            yield wrong("duty", f"{text}: {row['error']}; {again}")
        else:
            text = f"of {row['duty']}, {row['row_id']} is set aside: {row['error']}"
            yield wrong("set aside", f"{text}; tried {row['tries']} times, {again}")


def waits(found: list[Row]) -> Iterator[Finding]:
    """Who makes us wait for a lock?"""
    for row in found:
        text = f"{row['application']} has waited {row['waits_s']:.0f} s for a lock of {shown(row)}"
        yield wrong("blocked", f"{text}; to end it: SELECT pg_terminate_backend({row['pid']})")


def pins(found: list[Row], seen: bool = True) -> Iterator[Finding]:
    """Who keeps dead rows from being taken away? Not `seen`: others' transactions are hidden from this role."""
    for row in found:
        age = "" if row["age_s"] is None else f" for {row['age_s']:.0f} s"
        if row["what"] == "session":
            text = f"vacuum waits{age} for {shown(row)}; to end it: SELECT pg_terminate_backend({row['pid']})"
        elif row["what"] == "prepared":
            gid = row["application"]
            text = f"vacuum waits{age} for a prepared transaction: COMMIT PREPARED or ROLLBACK PREPARED '{gid}'"
        elif row["what"] == "slot":
            text = f"vacuum waits for replication slot {row['application']} ({row['state']}): drop it if unused"
        else:
            text = f"vacuum waits for standby {row['application']}: see its hot_standby_feedback and its long queries"
        yield (wrong if (row["age_s"] or 0) > PINNED_FAIL_S else warn)("xmin", text)
    if not seen:
        yield warn("xmin", f"unknown: {OWN_SESSIONS}")
    elif not found:
        yield ok("xmin", f"no transaction is older than {PINNED_WARN_S:.0f} s")


def objects(conn: Connection[Any]) -> Iterator[Finding]:
    """Are the tables, indexes and triggers those of this version, and do they work?"""
    from pgsched.db.schema import expected_objects
    from pgsched.db.schema.check import drift

    found = [f"{row['what']} {row['name']} of {row['of']} {row['text']}" for row in inspection.broken_objects(conn)]
    found += drift(conn) + expected_objects.differences(conn)
    for text in found:
        broken = "valid" in text or "not ready" in text
        cure = "REINDEX INDEX CONCURRENTLY makes it anew" if broken else "`pgsched migrate --sql` says how it should be"
        if text.endswith("is disabled"):
            cure = "ALTER TABLE pgsched... ENABLE TRIGGER"
        elif text.startswith("policy"):
            cure = "`pgsched migrate --roles` puts it in force"
        yield wrong("schema", f"{text}: {cure}")
    if not found:
        yield ok("objects", "tables, indexes, triggers and functions are those of this version")


def workers(found: list[Row]) -> Iterator[Finding]:
    """Do the processes agree on the time and on the tz database, and are they there?"""
    for row in found:
        if row["seen_s"] > max(LOST_S, row["lease_s"]):  # before that `status` tells of it
            text = f"{row['name']} was last seen {row['seen_s']:.0f} s ago and has not signed off"
            yield warn("worker", f"{text}: its process or its host is gone or cut off; its runs start again elsewhere")
        if abs(row["clock_ahead_s"] or 0) > SKEW_S:
            text = f"the clock of {row['hostname']} differed from the database's by {row['clock_ahead_s']:+.0f} s"
            yield warn("clock", f"{text} at the last heartbeat of {row['name']}; only logs are wrong: repair NTP")
    mine = {"tz_version": tzdata_version(), "version": pgsched.__version__}
    for field, what in (("tz_version", "tz database"), ("version", "pgsched version")):
        seen = {row[field]: row["name"] for row in found if row["alive"] and row[field]}
        if seen:
            seen.setdefault(mine[field], "this program")
        if len(seen) > 1:
            text = ", ".join(f"{version} ({name})" for version, name in sorted(seen.items()))
            yield warn(field, f"processes differ in their {what}: {text}; which one plans depends on who leads")


def notifications(row: Row, seen: bool = True) -> Iterator[Finding]:
    """Does the queue fill up that every NOTIFY goes through? When it is full, commits that notify fail."""
    used = f"the notification queue is {row['usage']:.0%} full"
    if row["usage"] <= NOTIFY_FULL:
        yield ok("notify", used)
        return
    who = "" if row["pid"] is None else f"; the oldest transaction is that of {shown(row)}"
    end = "" if row["pid"] is None else f"; to end it: SELECT pg_terminate_backend({row['pid']})"
    text = f"{used}: a session that listens is in a transaction, and when it is full nothing can be enqueued"
    if not seen and not who:
        who = f"; which one is unknown: {OWN_SESSIONS}"
    yield warn("notify", f"{text}{who}{end}")


def replication(facts: Row) -> Iterator[Finding]:
    """Would a failover lose what was committed?"""
    if facts["standbys"] and not facts["synchronous"]:
        text = f"{facts['standbys']} standbys, none synchronous: a failover forgets the last commits"
        yield warn("standby", f"{text}, and runs that were settled run again (synchronous_standby_names)")


def poolers(conn: Connection[Any]) -> Iterator[Finding]:
    """What is between this command, or a worker, and the server?"""
    here, workers = pooler.of(conn), live.workers(conn)
    polling = [row["name"] for row in workers if row["pooler"] == "transaction"]
    if here == "transaction" or polling:
        text = "a pooler in transaction mode: no notification passes, so work is found a poll period later (--poll)"
        who = f"{len(polling)} of {len(workers)} workers go through it" if workers else "this command goes through it"
        yield ok("pooler", f"{text}, and leadership is proved in each transaction; {who}")
    elif here or any(row["pooler"] for row in workers):
        yield ok("pooler", "a pooler in session mode: as good as none")


def vacuum(conn: Connection[Any], trend_s: float) -> Iterator[Finding]:
    """Do dead rows pile up? Looks twice."""
    before, began = inspection.tables(conn), time.monotonic()
    time.sleep(max(0.0, trend_s))
    yield from dead_rows(before, inspection.tables(conn), time.monotonic() - began)


def dead_rows(before: list[Row], now: list[Row], seconds: float) -> Iterator[Finding]:
    """Is vacuum keeping up?"""
    was = {row["name"]: row["dead"] for row in before}
    bad = False
    for row in now:
        if row["off"]:
            yield warn(
                "vacuum", f"autovacuum is off for table {row['name']}: ALTER TABLE ... RESET (autovacuum_enabled)"
            )
        if row["dead"] > max(MOST_DEAD * row["limit"], FEW_DEAD):
            bad = True
            trend = (row["dead"] - was.get(row["name"], row["dead"])) / seconds
            last = "never" if row["vacuumed_s"] is None else f"{row['vacuumed_s']:.0f} s ago"
            text = f"{row['dead']} dead rows ({trend:+.0f}/s) beside {row['live']} live ones, vacuumed {last}"
            yield warn(
                "vacuum", f"table {row['name']}: {text}; see xmin, and give autovacuum more workers or less delay"
            )
    if not bad:
        dead, earlier = sum(row["dead"] for row in now), sum(was.values())
        yield ok("vacuum", f"{dead} dead rows in all tables ({(dead - earlier) / seconds:+.0f}/s)")


# Who is in the way: these read no table of ours, so they answer also while all of them are locked.
SESSIONS: tuple[Check, ...] = (
    ("rights", rights),
    ("blocked", lambda conn: locks(inspection.locks(conn, WAITS_S))),
    ("blocked", lambda conn: waits(inspection.waits(conn, WAITS_S))),
    ("leader", lambda conn: leader(inspection.leader_locks(conn))),
    ("xmin", lambda conn: pins(inspection.vacuum_pins(conn, PINNED_WARN_S), sees_all(conn))),
    ("notify", lambda conn: notifications(inspection.notification_queue(conn), sees_all(conn))),
    ("standby", lambda conn: replication(inspection.replication(conn))),
)
WORK: tuple[Check, ...] = (
    ("work", work),
    ("duty", undone),
    ("objects", objects),
    ("worker", lambda conn: workers(inspection.workers(conn))),
    ("pooler", poolers),
)
