"""Admission under limits: queue the waiting runs that limits allow. The last of admission's passes.

Counts come from the rows of runs, in the transaction that admits. Invariant: only the fenced leader makes a limited run
claimable. So between its count and its commit the number of admitted runs (queued or running) can only fall. When a
limit is lowered, the admitted runs beyond it wait again.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgsched.core.admission import (
    UNLIMITED,
    Candidate,
    Gate,
    Group,
    Window,
    candidates_to_read,
    choose_runs,
    default_burst,
    tokens_now,
)
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import limits

MAX_GROUPS = 5000  # groups (queue and key) that one pass reads at most
MAX_CANDIDATES = 20_000  # candidates that one pass reads at most
TARGET_PASS_S = 0.05  # intended time of a pass at most: no slot is decided meanwhile
FIRST_SHARE, LEAST_SHARE = 0.1, 0.004  # of MAX_GROUPS and MAX_CANDIDATES: in the first pass, and at least
FULL_BURST_RECHECK_S = 0.01  # pause until a full burst is looked at again


@dataclass
class WriterWait:
    """The transactions that a changed limit waits for: those that wrote runs when the change was seen."""

    writers: dict[str, int]  # by virtual transaction: the pid of its session
    until: float  # monotonic
    shown_pid: int | None = None  # in `pgsched.pauses`

    def is_over(self, now: float) -> bool:
        """Check whether these transactions have ended, or were waited for long enough."""
        return not self.writers or now >= self.until


@dataclass
class AdmissionState:
    """State that a leader keeps from pass to pass: hints, never counts."""

    last_group: tuple[str, str] = ("", "")  # queue and key that the next pass goes on behind
    last_key_by_queue: dict[str, str] = field(default_factory=dict)  # by queue: the key that had its turn last
    windows: dict[str, Window] = field(default_factory=dict)  # by queue
    wait_s: float | None = None  # until a rate has a token, or a group is worth a look; None: only an event helps
    more: bool = False  # there is more to admit at once
    share: float = FIRST_SHARE  # of MAX_GROUPS and MAX_CANDIDATES that a pass takes
    waits: dict[limits.Changed, WriterWait] = field(default_factory=dict)  # the transactions that each change waits for

    def adapt_share(self, seconds: float) -> None:
        """Adapt `share` to the seconds that a pass took; a quick pass raises it only if there was more to do."""
        if seconds > TARGET_PASS_S or self.more:
            self.share = min(1.0, max(LEAST_SHARE, self.share * min(2.0, TARGET_PASS_S / max(seconds, 0.001))))


def group_name(row: Row) -> str:
    """Return the name under which the group of a queue and a key is set aside."""
    return f"{row['queue']} {row['key']}"


def first_group(conn: Connection[Any], after: tuple[str, str]) -> str | None:
    """Return the first group that a pass behind the group `after` would read."""
    found, _ = limits.list_waiting_groups(conn, after, 1, 1)
    return group_name(found[0]) if found else None


def admit_limited_runs(
    conn: Connection[Any], admission_state: AdmissionState, n: int = MAX_GROUPS, set_aside_groups: Collection[str] = ()
) -> int:
    """Do one pass over at most `n` waiting groups; return how many runs were admitted or taken back.

    A pass is kept short so that slots are on time; the next one continues behind it. Groups in `set_aside_groups` wait.
    """
    began = time.monotonic()
    done = run_pass(conn, admission_state, n, set_aside_groups)
    if n == MAX_GROUPS:
        admission_state.adapt_share(time.monotonic() - began)
    return done


def run_pass(
    conn: Connection[Any], admission_state: AdmissionState, most: int, set_aside_groups: Collection[str]
) -> int:
    """Do the pass of `admit_limited_runs`: read the groups, take back the surplus, and admit runs."""
    found, queues = limits.list_waiting_groups(
        conn, admission_state.last_group, min(most, math.ceil(MAX_GROUPS * admission_state.share)), most
    )
    admission_state.more = bool(found) and found[-1]["last"]
    admission_state.last_group = (found[-1]["queue"], found[-1]["key"]) if admission_state.more else ("", "")
    admission_state.wait_s = None
    found = [row for row in found if group_name(row) not in set_aside_groups] if set_aside_groups else found
    if not found:
        return 0
    bound = {row["key"]: row for row in found if row["concurrency"] is not None or row["rate"] is not None}
    now = queues[""]["now"]
    rows = {name: queues[name] for name in {row["queue"] for row in found}}
    add_refund_ages(conn, rows, bound)
    queue_gates = {name: build_queue_gate(row, admission_state, now) for name, row in rows.items()}
    key_gates = {key: build_gate(row, now) for key, row in bound.items()}
    done = take_back_surplus(conn, queue_gates, key_gates)
    groups = [
        Group(
            row["queue"], row["key"], key_gates.get(row["key"]) or Gate(), row["weight"], first_candidate(row, queues)
        )
        for row in found
        if not queues[row["queue"]]["paused"]
    ]
    ordered = {key for key, row in bound.items() if row["ordered"]}
    groups = [g for g in groups if g.gate.allows() and queue_gates[g.queue].allows()]
    chosen = choose_candidates(
        conn,
        select_groups_in_turn(groups, queues, queue_gates, admission_state),
        queues,
        queue_gates,
        ordered,
        admission_state,
    )
    done += admit_chosen(conn, chosen, queue_gates)
    save_tokens(conn, admission_state, now, queues, bound, queue_gates, key_gates)
    return done


def choose_candidates(
    conn: Connection[Any],
    groups: list[Group],
    queues: dict[str, Row],
    gates: dict[str, Gate],
    ordered: set[str],
    admission_state: AdmissionState,
) -> list[tuple[Group, Candidate]]:
    """Choose the runs that may be admitted now, and take their room and tokens from the gates."""
    most = read_candidates(conn, groups, queues, gates, ordered, math.ceil(MAX_CANDIDATES * admission_state.share))
    chosen = []
    for name, members in group_by_queue(groups).items():
        selected = choose_runs(members, gates[name], queues[name]["fair"])
        admission_state.last_key_by_queue[name] = selected[-1][0].key if selected else members[-1].key
        chosen += selected
    # a group that got all the candidates it asked for, and has room left, may have more
    admission_state.more |= any(
        0 < n <= len(group.runs) and group.gate.allows() and gates[group.queue].allows()
        for group, n in zip(groups, most, strict=True)
    )
    return chosen


def save_tokens(
    conn: Connection[Any],
    admission_state: AdmissionState,
    now: datetime,
    queues: dict[str, Row],
    bound: dict[str, Row],
    queue_gates: dict[str, Gate],
    key_gates: dict[str, Gate],
) -> None:
    """Save the tokens that are left, and compute when to look again."""
    rated = {f"queue {name}": gate for name, gate in queue_gates.items() if gate.tokens < UNLIMITED}
    rated |= {f"key {key}": gate for key, gate in key_gates.items() if gate.tokens < UNLIMITED}
    limits.save_buckets(conn, [(name, gate.tokens, gate.unstarted) for name, gate in rated.items()], now)
    for name in admission_state.windows.keys() & queue_gates.keys():
        admission_state.windows[name].left, admission_state.windows[name].at = queue_gates[name].unstarted, now
    admission_state.wait_s = next_token_s(rated, queues, bound)


def group_by_queue(groups: list[Group]) -> dict[str, list[Group]]:
    """Return the groups of each queue, in the order of their keys."""
    found: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        found[group.queue].append(group)
    return found


def select_groups_in_turn(
    groups: list[Group], queues: dict[str, Row], gates: dict[str, Gate], admission_state: AdmissionState
) -> list[Group]:
    """Return the groups to read: in a fair queue, those behind the key served last, as many as there is room for."""
    found = []
    for name, members in group_by_queue(groups).items():
        if queues[name]["fair"]:
            last = admission_state.last_key_by_queue.get(name, "")
            turns = [g for g in members if g.key > last] + [g for g in members if g.key <= last]
            found += turns[: max(1, int(min(gates[name].room, MAX_GROUPS)))]
        else:
            found += members
    return found


def add_refund_ages(conn: Connection[Any], queues: dict[str, Row], bound: dict[str, Row]) -> None:
    """Add to the rows of limits with a rate the ages in seconds of the claims that were given back unstarted."""
    rated = [{name: row for name, row in rows.items() if row["rate"] is not None} for rows in (queues, bound)]
    for one in limits.take_refunds(conn, list(rated[0]), list(rated[1])):
        for row in (rated[0].get(one["queue"]), rated[1].get(one["key"])):
            if row is not None:
                row.setdefault("given_back", []).append(one["age_s"])


def build_gate(row: Row, now: Any) -> Gate:
    """Build the gate of a limit; a negative room means that runs have to be taken back."""
    gate = Gate(unstarted=row["unstarted"])
    if row["concurrency"] is not None:
        gate.room = row["concurrency"] - row["admitted"]
    if row["rate"] is not None:
        burst = row["burst"] or default_burst(row["rate"])
        elapsed = (now - row["bucket_at"]).total_seconds() if row["bucket_at"] is not None else 0.0
        bucket = None if row["tokens"] is None else (row["tokens"], elapsed, row["bucket_unstarted"])
        gate.burst = burst
        gate.tokens = tokens_now(
            row["rate"], row["period_s"], burst, row["unstarted"], bucket, row.get("given_back", ())
        )
    return gate


def build_queue_gate(row: Row, admission_state: AdmissionState, now: Any, *, shrink: bool = False) -> Gate:
    """Build the gate of a queue.

    In a fair or ageing queue it admits no more than the workers take at once, because nothing overtakes an admitted
    run. With `shrink` the room is negative where more are admitted, so that the surplus is taken back.
    """
    gate = build_gate(row, now)
    if row["fair"] or row["ageing_s"] is not None:
        window = admission_state.windows.setdefault(row["queue"], Window())
        space = window.resize(row["places"], row["unstarted"], now) - row["unstarted"]
        gate.room = min(gate.room, space if shrink else max(0, space))
    return gate


def take_back_surplus(conn: Connection[Any], queue_gates: dict[str, Gate], key_gates: dict[str, Gate]) -> int:
    """Make the admitted runs beyond a limit wait again; return how many."""
    gates: list[tuple[str | None, str | None, Gate]] = [(name, None, gate) for name, gate in queue_gates.items()]
    gates += [(None, key, gate) for key, gate in key_gates.items()]
    over = [one for one in gates if count_excess(one[2]) > 0]
    taken = limits.take_back(conn, [(queue, key, count_excess(gate)) for queue, key, gate in over])
    for (_, _, gate), n in zip(over, taken, strict=True):
        gate.room += n
        gate.give_back(n)
    return sum(taken)


def count_excess(gate: Gate) -> int:
    """Return how many admitted runs that have not started are beyond the limit."""
    return int(max(0, min(gate.unstarted, max(-gate.room, gate.unstarted - gate.burst))))


def read_candidates(
    conn: Connection[Any],
    groups: list[Group],
    queues: dict[str, Row],
    gates: dict[str, Gate],
    ordered: set[str],
    budget: int,
) -> list[int]:
    """Fill the groups with their first runs; return how many runs of each group were asked for.

    A group for which one run is enough may have it already (see `first_candidate`).
    """
    most = candidates_to_read(groups, gates, {name for name, row in queues.items() if row["fair"]}, budget)
    pairs = [(group, n) for group, n in zip(groups, most, strict=True) if n > 1 or not group.runs]
    groups = [group for group, _ in pairs]
    ageing = [queues[group.queue]["ageing_s"] for group in groups]
    rows = limits.first_waiting_runs(
        conn,
        [group.queue for group in groups],
        [group.key for group in groups],
        [n for _, n in pairs],
        [group.key in ordered for group in groups],
        ageing,
    )
    for group in groups:
        group.runs = ()
    runs: dict[int, list[Candidate]] = defaultdict(list)
    for row in rows:
        runs[row["n"] - 1].append(build_candidate(row, ageing[row["n"] - 1]))
    for place, found in runs.items():
        if ageing[place] is not None:
            found.sort(key=lambda run: (run.priority, run.ready_at, run.id))
        groups[place].runs = found
    return most


def first_candidate(row: Row, queues: dict[str, Row]) -> list[Candidate]:
    """Return the first run of a group, if it is known and only limits hold it."""
    return [build_candidate(row, None)] if row["free"] and queues[row["queue"]]["ageing_s"] is None else []


def build_candidate(row: Row, ageing_s: float | None) -> Candidate:
    """Build a candidate with the priority that the run has risen to."""
    risen = 0 if ageing_s is None else min(row["priority"], int(max(0.0, row["waited_s"]) / ageing_s))
    return Candidate(row["id"], row["priority"] - risen, row["ready_at"], risen > 0)


def admit_chosen(conn: Connection[Any], chosen: list[tuple[Group, Candidate]], queue_gates: dict[str, Gate]) -> int:
    """Admit the chosen runs, return how many; the room and token of a locked run go back to its gates."""
    risen = [run for _, run in chosen if run.risen]
    limits.raise_priorities(conn, [run.id for run in risen], [run.priority for run in risen])
    admitted = limits.admit(conn, [(run.id, group.queue, group.key) for group, run in chosen])
    for group, run in chosen:
        if run.id not in admitted:
            for gate in (group.gate, queue_gates[group.queue]):
                gate.give_back(1)
    return len(admitted)


def next_token_s(rated: dict[str, Gate], queues: dict[str, Row], bound: dict[str, Row]) -> float | None:
    """Return the seconds until a rate may admit a run again; None if no rate holds any."""
    waits = []
    for name, gate in rated.items():
        row = queues[name[6:]] if name.startswith("queue ") else bound[name[4:]]
        if gate.tokens >= 1 - 1e-9:
            continue
        # a full burst that has not started gains no token: look again soon
        full = gate.burst - gate.unstarted < 1
        waits.append(FULL_BURST_RECHECK_S if full else max(0.001, (1 - gate.tokens) * row["period_s"] / row["rate"]))
    return min(waits, default=None)
