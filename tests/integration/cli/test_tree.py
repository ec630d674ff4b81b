"""`pgsched run tree`, and how a whole graph of runs is retried or cancelled."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from pgsched.db.queries.leader import ticks
from pgsched.leader.dependents import decide_dependencies
from tests.support.cli.said import Said

Cli = Callable[..., Said]


def add(db: psycopg.Connection, task: str, *parents: int, on_failure: str = "cancel") -> int:
    row = db.execute("SELECT pgsched.enqueue(%s, after => %s::bigint[], on_failure => %s)",
                     [task, list(parents) or None, on_failure]).fetchone()  # fmt: skip
    assert row is not None
    return int(row[0])


def end(db: psycopg.Connection, run_id: int, state: str, error: str | None = None) -> None:
    db.execute("UPDATE pgsched.runs SET state = %s, finished_at = now(), error = %s WHERE id = %s",
               [state, error, run_id])  # fmt: skip
    with db.transaction():
        decide_dependencies(db, 5000)
        ticks.admit(db, 5000)


def states(db: psycopg.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT state FROM pgsched.runs ORDER BY id").fetchall()]


def diamond(db: psycopg.Connection) -> list[int]:
    """Add extract, then load and check after it, report after both, and mail even if report fails."""
    extract = add(db, "extract")
    load, check = add(db, "load", extract), add(db, "check", extract)
    report = add(db, "report", load, check)
    return [extract, load, check, report, add(db, "mail", report, on_failure="run_anyway")]


def test_a_tree_shows_each_run_once_and_names_its_other_parents(pgsched: Cli, db: psycopg.Connection) -> None:
    a, b, c, d, e = diamond(db)
    add(db, "another")
    end(db, a, "succeeded")
    end(db, c, "dead", "ValueError: no\nluck")
    assert pgsched("run", "tree", str(b)).out.splitlines() == [
        f"{a}  succeeded  extract",
        f"├─ {b}*  queued  load",
        f"└─ {c}  dead  check  ValueError: no luck",
        f"   └─ {d}  cancelled  report  (also after {b})  dependency: run {c} (check) is dead",
        f"      └─ {e}  queued  mail",
        "5 runs: 2 queued, 1 succeeded, 1 dead, 1 cancelled",
    ]


def test_a_tree_as_json_names_all_edges(pgsched: Cli, db: psycopg.Connection) -> None:
    a, b, c, d, _ = diamond(db)
    found = {run["id"]: run for run in pgsched("run", "tree", str(a), "--json").json}
    assert found[d]["parents"] == [
        {"id": b, "on_failure": "cancel", "any_of": False, "state": "open"},
        {"id": c, "on_failure": "cancel", "any_of": False, "state": "open"},
    ]


def test_a_long_tree_is_cut_and_a_deep_tree_fits_on_the_screen(pgsched: Cli, db: psycopg.Connection) -> None:
    run = add(db, "t")
    for _ in range(300):
        run = add(db, "t", run)
    said = pgsched("run", "tree", str(run))
    assert len(said.out.splitlines()) == 201
    assert max(map(len, said.out.splitlines())) < 80
    assert said.err == "and 101 more: --limit 301 shows all\n"
    assert len(pgsched("run", "tree", str(run), "--limit", "1000").out.splitlines()) == 302


def test_a_graph_is_retried_from_the_run_that_failed(pgsched: Cli, db: psycopg.Connection) -> None:
    a, b, c, d, e = diamond(db)
    end(db, a, "succeeded")
    end(db, b, "succeeded")
    end(db, c, "dead")
    end(db, e, "succeeded")
    assert pgsched("run", "retry", str(d), "--tree", "--dry-run").out == "retry: 2 runs\n"
    assert pgsched("run", "retry", str(d), "--tree").out == "retried 2 runs: 1 queued, 1 waiting\n"
    assert states(db) == ["succeeded", "succeeded", "queued", "waiting", "succeeded"]
    end(db, c, "succeeded")
    assert states(db) == ["succeeded", "succeeded", "succeeded", "queued", "succeeded"]
    said = pgsched("run", "retry", str(d), "--tree", "--json")
    assert said.json == {"retried": 0, "runs": []}


def test_a_run_retried_alone_waits_for_its_parents_unless_now_is_given(pgsched: Cli, db: psycopg.Connection) -> None:
    a, _, c, d, _ = diamond(db)
    end(db, a, "succeeded")
    end(db, c, "dead")
    b = c - 1
    assert (
        pgsched("run", "retry", str(d)).out == f"run {d} is waiting again for runs {b}, {c}; --now starts it without\n"
    )
    pgsched("run", "cancel", str(d))
    assert pgsched("run", "retry", str(d), "--json").json == {"id": d, "state": "waiting", "waits_for": [b, c]}
    pgsched("run", "cancel", str(d))
    assert pgsched("run", "retry", "--now", str(d)).out == f"run {d} is queued again\n"
    assert states(db)[3] == "queued"
    assert pgsched("run", "retry", "--now", "--tree", str(d)).code == 2
    pgsched("run", "cancel", str(d))
    assert pgsched("run", "retry", str(d), str(c)).out == "retried 2 of 2 runs\n"
    assert states(db)[2:4] == ["queued", "waiting"]


def test_a_graph_is_cancelled_as_a_whole(pgsched: Cli, db: psycopg.Connection) -> None:
    a, *_, e = diamond(db)
    end(db, a, "succeeded")
    assert pgsched("run", "cancel", str(e), "--tree", "--reason", "stop").out == "cancelled 4 runs\n"
    assert states(db) == ["succeeded"] + ["cancelled"] * 4
    with db.transaction():
        decide_dependencies(db, 5000)
        ticks.admit(db, 5000)
    assert states(db) == ["succeeded"] + ["cancelled"] * 4


def test_a_tree_needs_exactly_one_existing_run(pgsched: Cli, db: psycopg.Connection) -> None:
    assert pgsched("run", "tree", "4711").code == 8
    assert pgsched("run", "cancel", "4711", "--tree").code == 8
    said = pgsched("run", "retry", "1", "2", "--tree")
    assert (said.code, said.err) == (2, "error: tree: name one run of the graph by its id\n")


def test_a_waiting_run_names_the_runs_it_waits_for(pgsched: Cli, db: psycopg.Connection) -> None:
    a = add(db, "t")
    b = add(db, "t", a)
    assert pgsched("run", "show", str(b), "--json").json["waits_for"] == [a]
    (line,) = [line for line in pgsched("run", "list").out.splitlines() if line.split()[0] == str(b)]
    assert " ago " in line, "since it was created: it has no time at which it starts"


def test_a_bare_retry_names_what_stays(pgsched: Cli, db: psycopg.Connection) -> None:
    a, b, c, d, e = diamond(db)
    end(db, a, "dead")
    end(db, e, "succeeded")
    said = pgsched("run", "retry", str(a))
    assert said.out == f"run {a} is queued again\n"
    assert said.err == (
        f"note: what waited for it stays cancelled: {b} (load), {c} (check), {d} (report); pgsched run retry --tree {a}"
        " revives all\n"
    )
    end(db, a, "dead")
    assert pgsched("run", "retry", str(a), "--json").json == {"id": a, "state": "queued", "left": [b, c, d]}
    end(db, a, "dead")
    said = pgsched("run", "retry", "--task", "extract")
    assert "stays cancelled" in said.err
    end(db, a, "dead")
    assert pgsched("run", "retry", str(a), str(b), str(c), str(d)).err == "", "they are all revived"


def test_backfills_of_several_jobs_are_listed_and_started(pgsched: Cli, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('load', '0 0 * * *', 't')")
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, after_jobs)"
               " SELECT 'report', '0 0 * * *', 't', ARRAY[id] FROM pgsched.jobs")  # fmt: skip
    db.execute("INSERT INTO pgsched.jobs (name, task, after_jobs) SELECT 'once', 't', ARRAY[id] FROM pgsched.jobs"
               " WHERE name = 'report'")  # fmt: skip
    asked = ("backfill", "start", "load", "--from", "2026-05-01", "--to", "2026-05-03", "--with-downstream")
    said = pgsched(*asked, "--dry-run")
    assert [line.split()[0] for line in said.out.splitlines()] == ["JOB", "load", "load", "report", "report", "4"]
    assert said.err.startswith("note: job once is left out: job once has no schedule")
    found = pgsched(*asked, "--dry-run", "--json").json
    assert [one["job"] for one in found["backfills"]] == ["load", "report"]
    started = pgsched(*asked, "--no-wait", "--json").json["backfills"]
    assert [(one["job"], one["slots"], one["after_backfill"]) for one in started] == [
        ("load", 2, None), ("report", 2, started[0]["id"]),
    ]  # fmt: skip
