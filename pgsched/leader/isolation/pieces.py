"""How each duty of the leader is done in pieces, where it fails as a whole.

Invariant: each piece is a fenced transaction of its own, so that what went through stays when another piece fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.leader import ticks
from pgsched.db.queries.leader.retention import Picked
from pgsched.db.queries.runs import dependencies
from pgsched.leader import admission, skipped_slots
from pgsched.leader.dependents import CHUNK, ENDED, FRESH, JUDGED, SLOTS, adopt_apart, find_parents, judge_apart
from pgsched.leader.isolation.guard import DutyGuard, Leading, Pieces
from pgsched.leader.isolation.set_aside import SetAside
from pgsched.leader.pruner import Pruner
from pgsched.leader.rollups import Counting

JOBS, BACKFILLS, STRETCHES, GROUPS = "jobs", "backfills", "passed over slots", "limited runs"
PRUNING, FIGURES, CLAIMS = "pruning", "figures", "expired claims"


@dataclass(frozen=True, slots=True)
class Site:
    """What the pieces of one term share."""

    conn: Connection[Any]
    leading: Leading
    aside: SetAside
    guard: DutyGuard


def of_duties(
    site: Site,
    settings: LeaderSettings,
    batch: int,
    tick: Callable[[int], int],
    standing: admission.Standing,
    counting: Counting,
    pruner: Pruner,
) -> dict[str, list[Pieces]]:
    """Of each duty that has any, by its name."""
    return {
        "tick": jobs(site, tick, settings.tick_batch),
        "dependencies": dependents(site, min(batch, CHUNK)),
        "admission": admitting(site, batch),
        "limits": limited(site, standing),
        "passed over slots": stretches(site),
        "backfills": own(BACKFILLS),
        "figures": figures(site, counting, batch),
        "pruning": pruning(site, pruner, settings.prune_batch),
    }


def jobs(site: Site, work: Callable[[int], int], most: int) -> list[Pieces]:
    """Of the tick; `work(n)`: it decides up to `n` jobs."""

    def first() -> str | None:
        due = ticks.due_jobs(site.conn, 1, 0.0, site.aside.numbers(JOBS))
        return str(due[0].id) if due else None

    def some(n: int) -> tuple[int, bool]:
        done = work(n)
        return done, done > 0

    return [Pieces(JOBS, most, some, first)]


def admitting(site: Site, most: int) -> list[Pieces]:
    """Of what only time, or other runs of the job, held."""
    return [admitting_step(site, step, name, most) for step, name in ticks.ADMITTING.items()]


def admitting_step(site: Site, step: str, name: str, most: int) -> Pieces:
    """Of one of its statements."""

    def work(n: int) -> tuple[int, bool]:
        with site.leading() as conn:
            done = ticks.admit_step(conn, step, n, site.aside.numbers(name))
        return done, done > 0

    def first() -> str | None:
        return text(ticks.admit_first(site.conn, step, site.aside.numbers(name)))

    return Pieces(name, most, work, first)


def dependents(site: Site, most: int) -> list[Pieces]:
    """Of runs that wait for others. Children that cannot be let go of are set aside one by one, behind their edges."""

    def judge(conn: Connection[Any], run_ids: Sequence[int]) -> tuple[int, Mapping[int, Exception]]:
        done, failed = judge_apart(conn, run_ids)
        if failed and not done:
            raise next(iter(failed.values()))
        return done, failed

    def fresh(n: int) -> tuple[int, bool]:
        with site.leading() as conn:
            dependencies.begin_again(conn)
        with site.leading() as conn:
            watched, more, loose = adopt_apart(conn, n, site.aside.numbers(FRESH))
            done, failed = judge(conn, loose)
        leave(site, JUDGED, failed, done)
        return watched, more

    def ended(n: int) -> tuple[int, bool]:
        with site.leading() as conn:
            more, free, _ = dependencies.release(conn, 0, n, site.aside.numbers(ENDED))
            done, failed = judge(conn, free)
        leave(site, JUDGED, failed, done)
        return len(free), more

    slots_after = 0

    def slots(n: int) -> tuple[int, bool]:
        nonlocal slots_after
        with site.leading() as conn:
            found, after = find_parents(conn, slots_after, n, site.aside.numbers(SLOTS))
        slots_after = after  # once it is committed
        return found, after > 0

    def first_slot() -> str | None:
        found = dependencies.slots(site.conn, slots_after, 1, site.aside.numbers(SLOTS))
        return str(found[0].run_id) if found else None

    def again(_: int) -> tuple[int, bool]:
        with site.leading() as conn:
            done, failed = judge(conn, [int(row) for row in site.aside.over(JUDGED)])
        leave(site, JUDGED, failed, done)
        return done, False

    def first_fresh() -> str | None:
        return text(next(iter(dependencies.fresh(site.conn, 0, 1, site.aside.numbers(FRESH))), None))

    def first_ended() -> str | None:
        return text(dependencies.release(site.conn, 0, 1, site.aside.numbers(ENDED), act=False)[2])

    return [
        Pieces(SLOTS, most, slots, first_slot, lambda: slots_after == 0),
        Pieces(FRESH, most, fresh, first_fresh),
        Pieces(ENDED, most, ended, first_ended),
        Pieces(JUDGED, 1, again, nothing),
    ]


def limited(site: Site, standing: admission.Standing) -> list[Pieces]:
    """Of runs that only limits hold: groups, by queue and key."""

    def work(n: int) -> tuple[int, bool]:
        return limit(site, standing, n), standing.more and not at_start()

    def at_start() -> bool:
        return standing.after == ("", "")

    return [Pieces(GROUPS, admission.GROUPS, work, lambda: admission.first_group(site.conn, standing.after), at_start)]


def limit(site: Site, standing: admission.Standing, n: int = admission.GROUPS) -> int:
    """A pass over groups that wait for limits alone, `n` at most; how many runs were admitted or taken back."""
    # Not in a pipeline: between its statements the server keeps no time, and a leader that is parted from it or
    # frozen there would hold the locks for as long as TCP lets it.
    before = standing.after
    try:
        with site.leading() as conn:
            return admission.admit(conn, standing, n, site.aside.ids(GROUPS))
    except Exception:
        standing.after = before
        raise


def stretches(site: Site) -> list[Pieces]:
    """Of slots that an edit or a resume passed over."""

    def work(n: int) -> tuple[int, bool]:
        with site.leading() as conn:
            done = skipped_slots.record(conn, n, site.aside.numbers(STRETCHES))
        return done, done >= n

    def first() -> str | None:
        return text(skipped_slots.first(site.conn, site.aside.numbers(STRETCHES)))

    return [Pieces(STRETCHES, skipped_slots.BATCH, work, first)]


def pruning(site: Site, pruner: Pruner, most: int) -> list[Pieces]:
    """Of ended runs that nothing keeps any longer."""

    def work(n: int) -> tuple[int, bool]:
        return prune(site, pruner, n), pruner.more

    def first() -> str | None:
        picked: Picked | None = pruner.picked
        return None if picked is None or picked.locked != 1 else str(picked.numbers[0])

    return [Pieces(PRUNING, most, work, first)]


def prune(site: Site, pruner: Pruner, n: int) -> int:
    """A batch of `n` ended runs; how many went."""
    try:
        with site.leading() as conn:
            return pruner.work(conn, n, site.aside.numbers(PRUNING))
    except Exception:
        pruner.undo()
        raise


def figures(site: Site, counting: Counting, most: int) -> list[Pieces]:
    """Of what ended and is counted. A run that is set aside is never counted."""

    def work(n: int) -> tuple[int, bool]:
        counted = counting.work(site.conn, site.leading, n, site.aside.numbers(FIGURES))
        return counted, counting.waits and counted > 0

    def first() -> str | None:
        with site.conn.transaction():
            return text(counting.first(site.conn, site.aside.numbers(FIGURES)))

    return [Pieces(FIGURES, most, work, first)]


def claims(site: Site, run_ids: Sequence[int], reap: Callable[[list[int]], int]) -> list[Pieces]:
    """Of claims whose lease has ended."""
    left = list(run_ids)

    def work(n: int) -> tuple[int, bool]:
        aside = set(site.aside.numbers(CLAIMS))
        some = [run for run in left if run not in aside][:n]
        done = reap(some) if some else 0
        left[:] = [run for run in left if run not in set(some)]
        return done, bool(some)

    def first() -> str | None:
        aside = set(site.aside.numbers(CLAIMS))
        return next((str(run) for run in left if run not in aside), None)

    return [Pieces(CLAIMS, max(1, len(left)), work, first)]


def own(name: str) -> list[Pieces]:
    """Of a duty that sets its rows aside by itself: nothing is done in pieces, but their time comes again."""
    return [Pieces(name, 1, unable, nothing)]


def leave(site: Site, name: str, failed: Mapping[int, Exception], went: int) -> None:
    """Set rows aside that failed alone while `went` others did not."""
    if failed:
        rows = ((str(row), first_line(error)) for row, error in failed.items())
        site.guard.set_aside(name, rows, proven=went > 0)


def text(row: int | None) -> str | None:
    """A row's number as it is set aside."""
    return None if row is None else str(row)


def nothing() -> None:
    """No row is known to be at fault."""


def unable(_: int) -> tuple[int, bool]:
    """It cannot be done in pieces."""
    raise RuntimeError("this duty has no pieces")
