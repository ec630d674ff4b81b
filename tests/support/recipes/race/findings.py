"""What is wrong in the ledger of a race: for each rule a query whose rows are violations of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tests.support.recipes.race.contender import LIMIT
from tests.support.recipes.race.ledger import Db

HOLDS = """(
    SELECT lock, fence, min(mode) AS mode, min(seq) AS first, max(seq) AS last FROM race.writes GROUP BY lock, fence)"""

OF_LOCKS = {
    "an older holder wrote after a newer one": """
        SELECT w.lock, w.fence, w.seq FROM (SELECT *, max(fence) OVER (PARTITION BY lock ORDER BY seq) AS highest
            FROM race.writes) w
        WHERE w.fence < w.highest AND (w.lock ~ '^(lock|election)-')""",
    "a fence is not higher than the one before": """
        SELECT g.lock, g.fence, g.before FROM (SELECT *, lag(fence) OVER (PARTITION BY lock ORDER BY seq) AS before
            FROM race.grants WHERE what = 'granted') g
        WHERE g.fence <= g.before""",
    "two holds have one fence": """
        SELECT lock, fence FROM race.writes GROUP BY lock, fence HAVING count(DISTINCT hold) > 1""",
    "somebody wrote who had no grant, or had it no more": """
        SELECT w.lock, w.fence, w.seq, g.seq AS granted, e.seq AS gone FROM race.writes w
        LEFT JOIN race.grants g ON (g.lock, g.fence, g.what) = (w.lock, w.fence, 'granted')
        LEFT JOIN race.grants e ON (e.lock, e.fence, e.what) = (w.lock, w.fence, 'gone')
        WHERE g.seq IS NULL OR w.seq < g.seq OR w.seq > e.seq""",
    "somebody wrote whose lease was over": "SELECT lock, fence, seq FROM race.writes WHERE expired",
    "somebody was granted it before one who came earlier": """
        SELECT lock, fence, seq, passed FROM race.grants WHERE passed IS NOT NULL""",
    "more were granted at once than may be": f"""
        SELECT h.lock, h.seq, h.holders, h.alone FROM (
            SELECT *, sum(n) OVER line AS holders, sum(n) FILTER (WHERE mode = 'exclusive') OVER line AS alone
            FROM (SELECT *, CASE what WHEN 'granted' THEN 1 ELSE -1 END AS n FROM race.grants) g
            WINDOW line AS (PARTITION BY lock ORDER BY seq)) h
        WHERE (h.alone > 0 AND h.holders > 1) OR (h.mode = 'counted' AND h.holders > {LIMIT})""",
    "more wrote at the same time than may be": f"""
        SELECT a.lock, a.fence, count(*) FROM {HOLDS} a JOIN {HOLDS} b
            ON b.lock = a.lock AND b.fence <> a.fence AND a.first BETWEEN b.first AND b.last
        GROUP BY a.lock, a.fence, a.mode
        HAVING bool_or('exclusive' IN (a.mode, b.mode)) OR (a.mode = 'counted' AND count(*) >= {LIMIT})""",
}

OF_ITEMS = {
    "an item was put twice": """
        SELECT key FROM race.changes_of_items WHERE what = 'put' GROUP BY key HAVING count(*) > 1""",
    "an item was lost": """
        SELECT p.key FROM race.puts p LEFT JOIN race.changes_of_items c ON (c.key, c.what) = (p.key, 'put')
        WHERE p.sure AND c.key IS NULL
        UNION SELECT key FROM race.changes_of_items
        GROUP BY key HAVING count(*) FILTER (WHERE what = 'deleted') <> 1""",
    "an item was consumed twice": "SELECT item FROM race.consumed GROUP BY item HAVING count(*) > 1",
    "an item was consumed, and is there": """
        SELECT item FROM race.consumed d WHERE NOT EXISTS (
            SELECT FROM race.changes_of_items c WHERE (c.item, c.what) = (d.item, 'deleted') AND c.seq > d.seq)""",
    "an item was consumed by another than its holder": """
        SELECT d.item, d.pid, c.holder FROM race.consumed d JOIN race.changes_of_items c
            ON (c.item, c.what) = (d.item, 'deleted')
        WHERE c.holder !~ (':' || d.pid || '$')""",
    "an item did not go from one holder back into the line, and only then to the next": """
        SELECT c.* FROM (SELECT *, lag(what) OVER w AS what_before, lag(session) OVER w AS session_before,
                lag(token) OVER w AS token_before
            FROM race.changes_of_items WINDOW w AS (PARTITION BY item ORDER BY seq)) c
        WHERE coalesce(c.what_before, 'nothing') <> ALL (
                CASE c.what WHEN 'put' THEN '{nothing}' WHEN 'held' THEN '{put,freed}' ELSE '{held}' END::text[])
            OR c.what IN ('freed', 'deleted')
                AND (c.session, c.token) IS DISTINCT FROM (c.session_before, c.token_before)""",
    "an item was taken from a session that had not ended": """
        SELECT item, session FROM race.changes_of_items
        WHERE what = 'freed' AND error ~ 'ended before it was consumed' AND NOT has_ended""",
}

OF_BARRIERS = {
    "a round opened for more or fewer than its size": """
        SELECT seq, size, members FROM race.rounds WHERE what = 'opened' AND cardinality(members) <> size""",
    # one whose session was lost may be counted again in a later round
    "a member was in two rounds": """
        SELECT m.member, o.seq, p.seq AS later FROM race.rounds o CROSS JOIN unnest(o.members) m(member)
        JOIN race.rounds p ON p.what = 'opened' AND p.seq > o.seq AND m.member = ANY (p.members)
        WHERE o.what = 'opened' AND NOT EXISTS (SELECT FROM race.rounds g
            WHERE g.what = 'out' AND g.member = m.member AND g.seq BETWEEN o.seq AND p.seq)""",
    "somebody came into a round that was open": """
        SELECT r.seq, r.member FROM (SELECT *, max(seq) FILTER (WHERE what = 'opened') OVER w AS opened,
                max(seq) FILTER (WHERE what = 'over') OVER w AS over
            FROM race.rounds WINDOW w AS (ORDER BY seq)) r
        WHERE r.what = 'in' AND r.opened > coalesce(r.over, 0)""",
    "somebody went on before the round had opened": """
        SELECT p.member, p.seq FROM race.passed p WHERE p.what = 'entered' AND NOT EXISTS (
            SELECT FROM race.rounds o WHERE o.what = 'opened' AND o.seq < p.seq AND p.member = ANY (o.members))""",
    "somebody went away before all others of the round": """
        SELECT p.member, p.seq, m.member AS other FROM race.passed p
        JOIN race.rounds o ON o.what = 'opened' AND p.member = ANY (o.members) CROSS JOIN unnest(o.members) m(member)
        WHERE p.what = 'left' AND NOT EXISTS (
            SELECT FROM race.rounds g WHERE g.what = 'out' AND g.member = m.member AND g.seq < p.seq)""",
}

ENDED_EARLY = """SELECT name, ended_at, lease_until FROM race.ends
    WHERE substring(name FROM ':([0-9]+)$')::int = ANY (%s) AND ended_at < lease_until"""


def find(db: Db, rules: dict[str, str]) -> list[str]:
    """Return what violates these rules, up to ten cases of each."""
    found = [(rule, db.execute(query.encode()).fetchmany(10)) for rule, query in rules.items()]
    return [f"{rule}: {rows}" for rule, rows in found if rows]


def find_early_ends(db: Db, killed: Iterable[int]) -> list[str]:
    """Return which sessions of killed processes ended before their lease."""
    return [f"a lease ended early: {row}" for row in db.execute(ENDED_EARLY, [list(killed)]).fetchall()]


def find_missed(db: Db, watcher: str, prefix: str) -> list[str]:
    """Return what a watcher has missed, seen twice, out of order, or otherwise than it was.

    What it knows that it has skipped is not missed.
    """
    truth = db.execute(
        "SELECT version, key, value FROM race.changes WHERE starts_with(key, %s) ORDER BY version", [prefix]
    ).fetchall()
    seen = db.execute(
        "SELECT version, key, kind, value FROM race.seen WHERE watcher = %s ORDER BY id", [watcher]
    ).fetchall()
    wrong = [f"{watcher}: {a[0]} and then {b[0]}" for a, b in pairwise(seen) if b[0] <= a[0]]
    expected, upto = dict[int, tuple[int, str, str, object]](), 0
    for version, _, kind, _ in [*seen, (2**63, "", "end", None)]:
        if kind == "skipped":
            expected[version] = (version, prefix, "skipped", None)
        else:
            news = (one for one in truth if upto < one[0] <= version)
            expected |= {one: (one, key, "deleted" if value is None else "put", value) for one, key, value in news}
        upto = version
    found = {row[0]: row for row in seen}
    wrong += [f"{watcher} missed {one}" for version, one in expected.items() if found.get(version) != one][:10]
    return wrong + [f"{watcher} saw {row}" for version, row in found.items() if version not in expected][:10]
