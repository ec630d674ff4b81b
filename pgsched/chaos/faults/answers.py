"""Faults of answers: cut a statement off before the server gets it, or after the server has done it.

The client that sent the statement cannot distinguish the two.
"""

from __future__ import annotations

from pgsched.chaos.faults.network import CRASHED
from pgsched.chaos.registry import fault
from pgsched.chaos.site.proxy import Loss, with_application_name
from pgsched.chaos.stage import Stage

CLAIM = r"SET state = 'running', token"
SUCCEEDED = r"SET state = 'succeeded', phase"
OUTCOMES = r"INSERT INTO pgsched\.attempts"
ENQUEUE = r"pgsched\.enqueue_result"
SLOTS = r"INSERT INTO pgsched\.runs \(job_id"
TIMES = 3
SLOT_RUNS = "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL"


def wait_for_losses(stage: Stage, loss: Loss, what: str) -> None:
    """Wait until all losses have happened."""
    stage.wait(lambda: loss.wait(0), 30, f"{what} to be cut off")


@fault("claim-unanswered", tier="quick")
def claim_unanswered(stage: Stage) -> None:
    """Lose answers to claims, before and after the server does them: claimed runs start at once, and once."""
    for at in ("before", "after"):
        loss = stage.proxy.lose_answer(CLAIM, at, times=TIMES, which=with_application_name("pgsched claim"))
        wait_for_losses(stage, loss, f"claims, {at} they are done,")
        first = stage.proxy.lose_answer(CLAIM, at, which=with_application_name("pgsched claim"))
        sent_at = stage.clock()
        run = stage.enqueue("brief", seconds=0.1)
        wait_for_losses(stage, first, "one more claim")
        stage.wait(lambda: stage.state(run) == "succeeded", 10, "the run to succeed")  # noqa: B023
        began = stage.one("SELECT extract(epoch FROM started_at)::float8 FROM pgsched.runs WHERE id = %s", run)
        stage.figure(f"start after a claim cut off {at} it is done", began - sent_at, bound=3.0)
    stage.figure("attempts that ended without an outcome", count_reaped_attempts(stage), bound=0)


@fault("settlement-unanswered", tier="quick")
def settlement_unanswered(stage: Stage) -> None:
    """Lose answers to settlements, before and after the server does them: each is recorded once, no run repeats."""
    for at in ("before", "after"):
        loss = stage.proxy.lose_answer(SUCCEEDED, at, times=TIMES, which=with_application_name("pgsched settle"))
        wait_for_losses(stage, loss, f"settlements, {at} they are done,")
        gate = f"mended-{at}"
        failing = stage.enqueue("fail", mended_by=gate)
        failed = stage.proxy.lose_answer(OUTCOMES, at, which=with_application_name("pgsched settle"))
        wait_for_losses(stage, failed, "the settlement of a failure")
        stage.open_gate(gate)
        stage.wait(lambda: stage.state(failing) == "succeeded", 30, "the failed run to succeed")  # noqa: B023
        recorded = stage.one(
            "SELECT r.attempt - 1 - count(a.token) FROM pgsched.runs r LEFT JOIN pgsched.attempts a ON a.run_id = r.id"
            " WHERE r.id = %s GROUP BY r.id", failing)  # fmt: skip
        stage.figure(f"failures that were not recorded once ({at})", abs(recorded), bound=0)
    stage.figure("attempts that ended without an outcome", count_reaped_attempts(stage), bound=0)


@fault("enqueue-unanswered", tier="quick")
def enqueue_unanswered(stage: Stage) -> None:
    """Lose answers to enqueues, before and after COMMIT: sent again with the same key, each makes one run."""
    for at in ("before", "after"):
        loss = stage.proxy.lose_answer(ENQUEUE, at, times=TIMES, which=with_application_name("pgsched producer"))
        wait_for_losses(stage, loss, f"enqueues, {at} they are done,")
        one = stage.proxy.lose_answer(ENQUEUE, at, which=lambda link: "producer" in link.frontend.application)
        stage.enqueue("brief")
        wait_for_losses(stage, one, "one more enqueue")
    again = sum(one.sent > 1 for one in stage.own_enqueues)
    doubles = stage.one(
        "SELECT count(*) FROM (SELECT FROM pgsched.runs WHERE task = 'brief' AND idempotency_key IS NOT NULL"
        " GROUP BY idempotency_key HAVING count(*) > 1) d"
    )
    stage.note(f"{again} of the fault's own enqueues were sent again")
    stage.figure("keys with two runs", doubles, bound=0)


@fault("tick-unanswered", tier="quick")
def tick_unanswered(stage: Stage) -> None:
    """Cut off the leader's transaction with new slots, before and after COMMIT: no slot is lost or made twice.

    Each time, a new term begins and goes on with the slots.
    """
    for at in ("before", "after"):
        for _ in range(TIMES):
            term = stage.one("SELECT max(term) FROM pgsched.leader")
            loss = stage.proxy.lose_answer(SLOTS, at, commit=True, which=with_application_name("pgsched leader"))
            wait_for_losses(stage, loss, f"a tick, {at} its COMMIT is done,")
            cut_at, slot_runs = stage.clock(), stage.one(SLOT_RUNS)
            stage.wait(lambda: stage.one("SELECT max(term) FROM pgsched.leader") > term, 15, "a new term")  # noqa: B023
            stage.wait(lambda: stage.one(SLOT_RUNS) > slot_runs, 15, "new slots")  # noqa: B023
            stage.figure(f"slots again after a tick cut off {at} COMMIT", stage.clock() - cut_at, bound=12.0)


def count_reaped_attempts(stage: Stage) -> int:
    """Return the number of attempts whose claim was taken away."""
    return int(stage.one(CRASHED))
