"""`pgsched doctor`: what is wrong with the running system, which session causes it, and what to do.

It checks all that `check` does, then problems that show only while work goes on. A failure holds work up or loses it; a
warning means that this will or may happen.

Invariant: doctor writes nothing, each query is bounded, and none depends on another's answer. The first queries find
blocking sessions, and read only the server's own views.
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
from pgsched.services.lock_check import check_locks
from pgsched.services.status import read_status

PINNED_WARN_S, PINNED_FAIL_S = 60.0, 3600.0  # age of a transaction that keeps dead rows: warning, and failure
WAITS_S = 2.0  # a lock that is held or waited for longer is reported
SKEW_S = 5.0  # a worker's clock that differs by more is reported
NOTIFY_FULL = 0.1  # share of the queue above which it is reported
TREND_S = 1.5  # between the two looks at dead rows
MOST_DEAD = 3.0  # times the number of dead rows at which autovacuum starts
FEW_DEAD = 50_000
LOST_S = 600.0  # a worker that was not seen for longer is reported
LOCK_TIMEOUT_MS = 1000  # short, because earlier checks have already found the locks
OWN_SESSIONS = "this role sees only its own sessions"
Check = tuple[str, Callable[[Connection[Any]], Iterable[Finding]]]


def doctor(flag: str | None, environ: Mapping[str, str] | None = None, trend_s: float | None = None) -> list[Finding]:
    """Check the settings, the database, and the work that goes on in it.

    This takes a little longer than `trend_s` seconds (None: TREND_S).
    """
    dsn = check.reachable(flag, environ)
    blockers = [] if dsn is None else run_checks_connected(dsn, SESSIONS)
    found = check.check(flag, environ)
    if dsn is None or check.exit_code(found):
        known = {one.name for one in found if one.level != "ok"}
        return found + [one for one in blockers if one.level != "ok" and one.name not in known]
    return (
        found
        + blockers
        + run_checks_connected(
            dsn, (*WORK, ("vacuum", partial(vacuum, trend_s=TREND_S if trend_s is None else trend_s)))
        )
    )


def run_checks_connected(dsn: str, checks: Iterable[Check]) -> list[Finding]:
    """Return the findings of these checks, on a connection of their own. If that fails, `check` gives the reason."""
    try:
        with connect(dsn, purpose="doctor", timeout_s=20, settings={"lock_timeout": str(LOCK_TIMEOUT_MS)}) as conn:
            return list(run_checks(conn, checks))
    except PgschedError as error:
        return [fail("connection", error)]


def run_checks(conn: Connection[Any], checks: Iterable[Check]) -> Iterator[Finding]:
    """Run every check by itself: one that fails, or waits in vain for a lock, reports that, and the others go on."""
    for name, ask in checks:
        if conn.closed:
            yield failure(name, "not checked: the connection was lost")
            continue
        try:
            yield from list(ask(conn))
        except NotPermitted as error:
            yield warn(name, f"unknown: {error}")
        except Exception as error:
            yield failure(name, f"not checked: {first_line(error)}")


def check_now(conn: Connection[Any]) -> Iterator[Finding]:
    """Yield the findings of all checks that need only one moment."""
    yield from run_checks(conn, (*SESSIONS, *WORK))


def rights(conn: Connection[Any]) -> Iterator[Finding]:
    """Warn of a missing grant, because sessions that this role cannot see would look absent."""
    if not sees_all(conn):
        yield warn("rights", f"{OWN_SESSIONS}: GRANT pg_monitor TO it (or pg_read_all_stats)")


def sees_all(conn: Connection[Any]) -> bool:
    """Return whether this role may see the sessions of other roles."""
    return bool(inspection.replication(conn)["all_queries"])


def exit_code(found: list[Finding], strict: bool = False) -> int:
    """Return the code of the first failure; with `strict`, 1 if there are only warnings; else 0."""
    warned = strict and any(finding.level == "warn" for finding in found)
    return check.exit_code(found) or int(warned)


def failure(name: str, text: str) -> Finding:
    """Return a failure: work is held up, or lost."""
    return fail(name, PgschedError(text))


def describe_session(row: Row) -> str:
    """Describe a session: its process, its user, and its query."""
    parts = [f"pid {row['pid']}", f"user {row['who']}", row.get("application") or row.get("by"), row["state"]]
    query = " ".join((row["query"] or "").split())
    return ", ".join(str(part) for part in parts if part) + (f": {query[:120]}" if query else "")


def work(conn: Connection[Any]) -> Iterator[Finding]:
    """Report the problems and notes of `read_status`, each with its remedy."""
    found = read_status(conn)
    for problem in found.findings:
        yield (warn if problem.note else failure)("work", f"{problem.text}; {problem.cure}")
    if found.healthy:
        yield ok("work", "nothing is known to hold work up")


def report_table_locks(found: list[Row]) -> Iterator[Finding]:
    """Report sessions that have locked whole tables of pgsched."""
    for row in found:
        age = "" if row["held_s"] is None else f" for {row['held_s']:.0f} s"
        text = f"{row['tables']}: locked{age} ({row['mode']}) by {describe_session(row)}: sessions that use them wait"
        yield failure("blocked", f"{text}; to end it: SELECT pg_terminate_backend({row['pid']})")


def leader(holders: list[Row]) -> Iterator[Finding]:
    """Report a leader's lock that another session holds, and a transaction of the leader that takes too long."""
    for row in holders:
        ours = row["leads"] or (row["application"] or "").startswith("pgsched leader")
        if not ours and row["lock"] == "leader":
            text = f"the lock by which candidates wait is held by another session ({describe_session(row)})"
            yield warn("leader", f"{text}: leaders do without it, and follow each other more slowly; end that session")
        elif row["lock"] == "fence" and (row["held_s"] or 0) > WAITS_S:
            text = f"the leader's transaction has gone on for {row['held_s']:.0f} s ({describe_session(row)})"
            yield failure("leader", f"{text}: nothing is planned meanwhile")


def check_set_aside(conn: Connection[Any]) -> Iterator[Finding]:
    """Report the rows and duties that the leader leaves undone, if this role may see them.

    A producer sees in `read_status` that a duty fails, but not the row of another owner.
    """
    with contextlib.suppress(NotPermitted):
        yield from report_set_aside(set_aside.list_for_people(conn))


def report_set_aside(found: list[Row]) -> Iterator[Finding]:
    """Report the rows with which the leader fails, and the duties that fail as a whole."""
    for row in found:
        again = f"tried again in {max(0.0, row['in_s']):.0f} s"
        if row["row_id"] in ("", "session"):
            what = "has failed" if not row["row_id"] else "has cost the leader its session"
            text = f'the leader\'s duty "{row["duty"]}" {what} {row["tries"]} times, for {row["for_s"]:.0f} s'
            yield failure("duty", f"{text}: {row['error']}; {again}")
        else:
            text = f"of {row['duty']}, {row['row_id']} is set aside: {row['error']}"
            yield failure("set aside", f"{text}; tried {row['tries']} times, {again}")


def report_lock_waits(found: list[Row]) -> Iterator[Finding]:
    """Report sessions for whose locks pgsched waits."""
    for row in found:
        text = f"{row['application']} has waited {row['waits_s']:.0f} s for a lock of {describe_session(row)}"
        yield failure("blocked", f"{text}; to end it: SELECT pg_terminate_backend({row['pid']})")


def report_vacuum_blockers(found: list[Row], seen: bool = True) -> Iterator[Finding]:
    """Report sessions, slots and standbys that keep dead rows from being removed.

    `seen`: False if this role cannot see the transactions of others.
    """
    for row in found:
        age = "" if row["age_s"] is None else f" for {row['age_s']:.0f} s"
        if row["what"] == "session":
            text = (
                f"vacuum waits{age} for {describe_session(row)}; to end it: SELECT pg_terminate_backend({row['pid']})"
            )
        elif row["what"] == "prepared":
            gid = row["application"]
            text = f"vacuum waits{age} for a prepared transaction: COMMIT PREPARED or ROLLBACK PREPARED '{gid}'"
        elif row["what"] == "slot":
            text = f"vacuum waits for replication slot {row['application']} ({row['state']}): drop it if unused"
        else:
            text = f"vacuum waits for standby {row['application']}: see its hot_standby_feedback and its long queries"
        yield (failure if (row["age_s"] or 0) > PINNED_FAIL_S else warn)("xmin", text)
    if not seen:
        yield warn("xmin", f"unknown: {OWN_SESSIONS}")
    elif not found:
        yield ok("xmin", f"no transaction is older than {PINNED_WARN_S:.0f} s")


def objects(conn: Connection[Any]) -> Iterator[Finding]:
    """Check whether tables, indexes and triggers are those of this version, and valid."""
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
        yield failure("schema", f"{text}: {cure}")
    if not found:
        yield ok("objects", "tables, indexes, triggers and functions are those of this version")


def check_workers(found: list[Row]) -> Iterator[Finding]:
    """Report lost workers, wrong clocks, and processes that differ in their tz database or version."""
    for row in found:
        if row["seen_s"] > max(LOST_S, row["lease_s"]):  # before that, `read_status` reports it
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
    """Check whether the queue of NOTIFY fills up: when it is full, commits that notify fail."""
    used = f"the notification queue is {row['usage']:.0%} full"
    if row["usage"] <= NOTIFY_FULL:
        yield ok("notify", used)
        return
    who = "" if row["pid"] is None else f"; the oldest transaction is that of {describe_session(row)}"
    end = "" if row["pid"] is None else f"; to end it: SELECT pg_terminate_backend({row['pid']})"
    text = f"{used}: a session that listens is in a transaction, and when it is full nothing can be enqueued"
    if not seen and not who:
        who = f"; which one is unknown: {OWN_SESSIONS}"
    yield warn("notify", f"{text}{who}{end}")


def replication(facts: Row) -> Iterator[Finding]:
    """Warn if a failover would lose commits."""
    if facts["standbys"] and not facts["synchronous"]:
        text = f"{facts['standbys']} standbys, none synchronous: a failover forgets the last commits"
        yield warn("standby", f"{text}, and runs that were settled run again (synchronous_standby_names)")


def poolers(conn: Connection[Any]) -> Iterator[Finding]:
    """Report a pooler between the server and this command, or a worker."""
    here, workers = pooler.pooler_of(conn), live.list_live_workers(conn)
    polling = [row["name"] for row in workers if row["pooler"] == "transaction"]
    if here == "transaction" or polling:
        text = "a pooler in transaction mode: no notification passes, so work is found a poll period later (--poll)"
        who = f"{len(polling)} of {len(workers)} workers go through it" if workers else "this command goes through it"
        yield ok("pooler", f"{text}, and leadership is proved in each transaction; {who}")
    elif here or any(row["pooler"] for row in workers):
        yield ok("pooler", "a pooler in session mode: as good as none")


def vacuum(conn: Connection[Any], trend_s: float) -> Iterator[Finding]:
    """Check whether dead rows pile up, by two looks that are `trend_s` seconds apart."""
    before, began = inspection.tables(conn), time.monotonic()
    time.sleep(max(0.0, trend_s))
    yield from dead_rows(before, inspection.tables(conn), time.monotonic() - began)


def dead_rows(before: list[Row], now: list[Row], seconds: float) -> Iterator[Finding]:
    """Compare two looks, to see whether vacuum keeps up."""
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


# Which sessions block others: these checks read no table of pgsched, so they work even while all are locked.
SESSIONS: tuple[Check, ...] = (
    ("rights", rights),
    ("blocked", lambda conn: report_table_locks(inspection.locks(conn, WAITS_S))),
    ("blocked", lambda conn: report_lock_waits(inspection.waits(conn, WAITS_S))),
    ("leader", lambda conn: leader(inspection.leader_locks(conn))),
    ("xmin", lambda conn: report_vacuum_blockers(inspection.vacuum_pins(conn, PINNED_WARN_S), sees_all(conn))),
    ("notify", lambda conn: notifications(inspection.notification_queue(conn), sees_all(conn))),
    ("standby", lambda conn: replication(inspection.replication(conn))),
)
WORK: tuple[Check, ...] = (
    ("work", work),
    ("duty", check_set_aside),
    ("objects", objects),
    ("worker", lambda conn: check_workers(inspection.list_registered_workers(conn))),
    ("pooler", poolers),
    ("lock", check_locks),
)
