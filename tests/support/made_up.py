"""A short history, made by hand, in which every promise holds; each test breaks it in one place."""

from __future__ import annotations

from pgsched.chaos.history import (
    Ack,
    Attempt,
    Change,
    Event,
    History,
    Job,
    Mark,
    Process,
    Run,
    Term,
)

T = 1_700_000_000.0  # a whole minute
FIRST, SECOND, THIRD = "token-1", "token-2", "token-3"
AT_REST = {"threads": 9, "descriptors": 18, "children": 0}


def sound() -> History:
    """Return the history.

    Job 1 has a slot every second: run 1 took the first, and run 2, which was missed, stands for the next two. Job 2 has
    a slot every two seconds: run 5, which was skipped. Run 3 was enqueued, crashed once with its worker, and then
    succeeded. Run 4 has the same limited key, and came after run 3.
    """
    return History(
        settings={"fault": "made up", "seed": 1, "lease_s": 3.0, "reap_s": 0.5, "stuck_s": 3.5, "ended": T + 60,
                  "limits": {"tenant": 1}, "stop_within_s": 20.0},
        jobs=[Job(1, "each-second", "* * * * * *", "UTC", T + 0.5, T + 0.5, T + 3.2, T + 3.0),
              Job(2, "each-two", "@every 2s", "UTC", T + 0.25, T + 0.25, T + 3.2, T + 2.25)],
        runs=[
            Run(1, 1, T + 1, "succeeded", FIRST, 1, "brief", "default", None),
            Run(2, 1, T + 3, "missed", None, 0, "brief", "default", None, covers_from=T + 2, covers_until=T + 3),
            Run(3, None, None, "succeeded", THIRD, 2, "hold", "default", "tenant:a", idempotency_key="load-1"),
            Run(4, None, None, "dead", SECOND, 1, "fail", "default", "tenant:a", idempotency_key="load-2"),
            Run(5, 2, T + 2.25, "skipped", None, 0, "brief", "default", None),
        ],
        attempts=[Attempt(3, SECOND, 1, "crashed", T + 1, T + 5), Attempt(4, SECOND, 1, "failed", T + 8, T + 9)],
        changes=journal(),
        marks=[Mark(2, T, 1, T + 0.5, 100), Mark(11, T + 1, 1, T + 1, 100), Mark(31, T + 4, 1, T + 3, 200),
               Mark(32, T + 4, 2, T + 2.25, 200)],
        terms=[Term(1, T, "insert", 1, 10, 100, False), Term(12, T + 1, "update", 1, 10, 100, False),
               Term(30, T + 1.6, "insert", 2, 11, 200, False), Term(31, T + 2.6, "update", 2, 11, 200, False),
               Term(32, T + 3.4, "update", 2, 11, 200, False), Term(33, T + 4, "update", 2, 11, 200, False)],
        ledger=[Event(14, 1, FIRST, "start", T + 1, 10), Event(15, 1, FIRST, "end", T + 1, 10),
                Event(22, 3, SECOND, "start", T + 1, 10), Event(42, 3, THIRD, "start", T + 5, 11),
                Event(43, 3, THIRD, "end", T + 6, 11), Event(44, 3, SECOND, "refused", T + 6, 10),
                Event(53, 4, SECOND, "start", T + 8, 11)],
        acknowledged=[Ack("load-1", 3), Ack("load-2", 4)],
        processes=[Process(10, "exited", -9, "SIGKILL", None, AT_REST, None),
                   Process(11, "worked", 0, "SIGTERM", 0.1, AT_REST, AT_REST)],
    )  # fmt: skip


def journal() -> list[Change]:
    """Return every change of the runs in `sound`."""
    return [
        Change(10, T + 1, "insert", 1, "queued", job_id=1, slot=T + 1),
        Change(13, T + 1, "update", 1, "running", FIRST, 1, T + 4, 1, T + 1),
        Change(16, T + 2, "update", 1, "succeeded", FIRST, 1, T + 4, 1, T + 1),
        Change(35, T + 4, "insert", 2, "missed", None, 0, None, 1, T + 3, T + 2, T + 3),
        Change(20, T + 1, "insert", 3, "queued"),
        Change(21, T + 1, "update", 3, "running", SECOND, 1, T + 4),
        Change(40, T + 4.8, "update", 3, "queued", None, 1),
        Change(41, T + 5, "update", 3, "running", THIRD, 2, T + 8),
        Change(45, T + 7, "update", 3, "succeeded", THIRD, 2, T + 8),
        Change(50, T + 1, "insert", 4, "waiting"),
        Change(51, T + 7, "update", 4, "queued"),
        Change(52, T + 8, "update", 4, "running", SECOND, 1, T + 11),
        Change(54, T + 9, "update", 4, "dead", SECOND, 1, None),
        Change(36, T + 4, "insert", 5, "skipped", None, 0, None, 2, T + 2.25),
    ]
