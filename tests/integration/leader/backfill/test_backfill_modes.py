"""The modes of a backfill: which slots each of them runs, and the reasons that are shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from pgsched.core.planning import backfill as core
from pgsched.db.queries.jobs import backfills
from pgsched.db.queries.jobs.backfills import Request
from tests.support.db.backfilling import DAY, MAY, WEEK, ask, through, work
from tests.support.db.setting import done, row_of, take
from tests.support.db.settling import settle

pytestmark = pytest.mark.usefixtures("job")


def put(db: psycopg.Connection, slot: datetime, state: str, **more: Any) -> int:
    """Insert a run of a past slot; return its id."""
    columns = {"scheduled_at": slot, "state": state, "task": "old", "origin": "schedule"} | more
    if state not in core.OPEN_STATES:
        columns["finished_at"] = slot
    row = db.execute(
        f"INSERT INTO pgsched.runs (job_id, {', '.join(columns)})"
        f" SELECT id{', %s' * len(columns)} FROM pgsched.jobs RETURNING id",
        list(columns.values()),
    ).fetchone()
    assert row is not None
    return int(row[0])


DAYS = [MAY + n * DAY for n in range(10)]
CLAIM = {"token": "00000000-0000-0000-0000-000000000000", "lease_until": MAY}
MISSING, FAILED, LEFT = ("missing", "unsuccessful", "all"), ("failed", "unsuccessful", "all"), ()
# for each day of May: the state of its row, further columns, the modes that run it, and the end of the reason
KINDS: list[tuple[str | None, dict[str, Any], tuple[str, ...], str]] = [
    ("succeeded", {"started_at": MAY}, ("all",), "succeeded"),
    ("dead", {"started_at": MAY}, FAILED, "ended dead"),
    ("cancelled", {"started_at": MAY}, FAILED, "was cancelled after it had started"),
    ("cancelled", {}, MISSING, "was cancelled before it started"),
    ("skipped", {"reason": "overlap: run 1 was not finished"}, MISSING, "ended skipped"),
    ("missed", {"reason": "start_deadline passed"}, MISSING, "ended missed"),
    ("running", CLAIM, LEFT, "is running"),
    (None, {}, MISSING, "it has no run"),
    (None, {}, MISSING, "it has no run of its own: it lies in the stretch of run 8, which ended missed"),
    ("missed", {"covers_from": DAYS[8], "covers_until": DAYS[9], "covers_count": 2}, MISSING, "ended missed"),
]


def everything(db: psycopg.Connection) -> None:
    """Add ten days with one slot of every kind; the last two lie in a missed stretch."""
    for slot, (state, columns, *_) in zip(DAYS, KINDS, strict=True):
        if state is not None:
            put(db, slot, state, **columns)


@pytest.mark.parametrize("mode", core.MODES)
@pytest.mark.parametrize("reverse", [False, True])
def test_each_mode_decides_each_kind_of_slot(db: psycopg.Connection, mode: str, reverse: bool) -> None:
    everything(db)
    found, choices = backfills.preview_backfill(db, "a", Request("2026-05-01", "2026-05-11", mode, reverse=reverse))
    expected = [
        (slot, "leave" if mode not in modes else "run" if state is None else "again")
        for slot, (state, _, modes, _) in zip(DAYS, KINDS, strict=True)
    ][:: -1 if reverse else 1]
    assert found.slots == 10
    assert [(choice.slot, choice.action) for choice in choices] == expected
    number, running = ask(db, 10, mode=mode, reverse=reverse), DAYS[6]
    started = [slot for batch in through(db, number) for slot in batch if slot != running]
    assert started == [slot for slot, action in expected if action != "leave"], "what was foreseen is what happens"
    rows = db.execute("SELECT count(*), count(DISTINCT scheduled_at) FROM pgsched.runs").fetchone()
    assert rows == ((8, 8) if mode == "failed" else (10, 10))


def test_no_slot_is_both_missing_and_failed_and_all_takes_each(db: psycopg.Connection) -> None:
    everything(db)
    taken = {
        mode: {choice.slot for choice in choices if choice.action != "leave"}
        for mode in core.MODES
        for _, choices in [backfills.preview_backfill(db, "a", Request("2026-05-01", "2026-05-11", mode))]
    }
    assert taken["missing"] & taken["failed"] == set()
    assert taken["missing"] | taken["failed"] == taken["unsuccessful"]
    assert taken["all"] - taken["missing"] - taken["failed"] == {DAYS[0]}, "and what succeeded once more"


def test_the_preview_gives_the_reason_for_each_slot(db: psycopg.Connection) -> None:
    everything(db)
    _, choices = backfills.preview_backfill(db, "a", Request("2026-05-01", "2026-05-11"))
    for choice, (state, _, _, reason) in zip(choices, KINDS, strict=True):
        assert choice.reason == (reason if state is None else f"run {choice.run_id} {reason}")
    assert db.execute("SELECT count(*) FROM pgsched.backfills").fetchone() == (0,)


def test_a_slot_that_a_run_stood_for_is_missing_but_not_failed(db: psycopg.Connection) -> None:
    put(db, WEEK[6], "succeeded", covers_from=WEEK[0], covers_until=WEEK[6], covers_count=7)
    actions = {
        mode: [c.action for c in backfills.preview_backfill(db, "a", Request("2026-05-01", "2026-05-08", mode))[1]]
        for mode in core.MODES
    }
    assert actions == {"missing": ["run"] * 6 + ["leave"], "failed": ["leave"] * 7,
                       "unsuccessful": ["run"] * 6 + ["leave"], "all": ["run"] * 6 + ["again"]}  # fmt: skip


def test_a_stretch_that_ends_far_behind_the_range_is_found(db: psycopg.Connection) -> None:
    put(
        db,
        datetime(2026, 8, 1, tzinfo=UTC),
        "missed",
        covers_from=WEEK[0],
        covers_until=datetime(2026, 8, 1, tzinfo=UTC),
    )
    put(db, datetime(2026, 6, 1, tzinfo=UTC), "skipped", covers_from=datetime(2026, 6, 1, tzinfo=UTC),
        covers_until=datetime(2026, 6, 1, tzinfo=UTC))  # fmt: skip
    _, choices = backfills.preview_backfill(db, "a", Request("2026-05-01", "2026-05-08"))
    assert {choice.reason.rpartition(": ")[2] for choice in choices} == {
        "it lies in the stretch of run 1, which ended missed"
    }


@pytest.mark.parametrize(
    ("before", "words"), [("missed", "ended missed"), ("dead", "ended dead"), ("cancelled", "was cancelled"),
                          ("succeeded", "succeeded")]
)  # fmt: skip
def test_the_reason_for_a_slot_of_a_revived_stretch_names_its_former_state(
    db: psycopg.Connection, before: str, words: str
) -> None:
    stretch = {"covers_from": WEEK[0], "covers_until": WEEK[6], "covers_count": 7, "covers_state": before}
    run = put(db, WEEK[6], "queued", **stretch)
    expected = (
        f"it has no run of its own: it lies in the stretch of run {run}, which {words}; later it was revived, for slot"
    )
    for state, finished in (("queued", None), ("dead", MAY)):
        db.execute("UPDATE pgsched.runs SET state = %s, finished_at = %s", [state, finished])
        choice = backfills.preview_backfill(db, "a", Request("2026-05-01", "2026-05-08"))[1][0]
        assert choice.reason == f"{expected} 2026-05-07 00:00:00 UTC alone"


def test_a_rerun_is_a_further_attempt_of_the_same_run_with_current_settings(db: psycopg.Connection) -> None:
    run = put(db, WEEK[0], "dead", attempt=3, max_attempts=3, error="it failed", crashes=2, reason="all used",
              expires_at=MAY, held_until=MAY, cancel_requested_at=MAY)  # fmt: skip
    ask(db, 1, mode="failed")
    work(db)
    row = row_of(db, run)
    assert (row["state"], row["attempt"], row["max_attempts"], row["task"], row["error"]) == (
        "queued", 3, 5, "t", "it failed",
    )  # fmt: skip
    assert [row[c] for c in ("finished_at", "expires_at", "held_until", "cancel_requested_at", "crashes", "token")] == [
        None, None, None, None, 0, None,
    ]  # fmt: skip
    (claim,) = take(db)
    assert (claim.id, claim.attempt) == (run, 4)


def test_a_repeated_success_leaves_its_first_attempt_as_evidence(db: psycopg.Connection, dsn: str) -> None:
    ask(db, 1)
    work(db)
    (claim,) = take(db)
    settle(dsn, done(claim))
    work(db)
    ask(db, 1, mode="all")
    work(db)
    assert db.execute("SELECT token, attempt, outcome FROM pgsched.attempts").fetchall() == [
        (claim.token, 1, "succeeded")
    ]
    assert (row_of(db, claim.id)["state"], row_of(db, claim.id)["attempt"]) == ("queued", 1)
