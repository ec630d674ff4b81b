"""Faults of networks: partitions of the leader both ways and one way, slow links, black holes, outages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from pgsched.chaos.fleet import Member
from pgsched.chaos.registry import fault
from pgsched.chaos.site.network_namespace import Namespace
from pgsched.chaos.site.proxy import Proxy
from pgsched.chaos.stage import SLACK_S, Stage
from pgsched.leader.duties import claims

Direction = Literal["up", "down"]
NEW_LEADER_S = 12.0
CUT_OFF_S = 16.0
TERM = "SELECT max(term) FROM pgsched.leader"
ENDED = "SELECT count(*) FROM pgsched.runs WHERE finished_at IS NOT NULL"
CRASHED = "SELECT count(*) FROM pgsched.attempts WHERE outcome = 'crashed' OR error LIKE 'worker lost:%%'"
REPEATED = """SELECT count(*) FROM (SELECT FROM chaos.ledger WHERE event = 'start'
GROUP BY run_id HAVING count(DISTINCT token) > 1) r"""


class Route(Protocol):
    """How one worker reaches the server, with methods to cut and restore the connection."""

    def part(self, *directions: Direction) -> None:
        """Let nothing pass in these directions."""

    def join(self) -> None:
        """Let everything pass again."""


class ByProxy:
    """A way through a proxy: when parted, connections stay up and data does not arrive."""

    def __init__(self, proxy: Proxy) -> None:
        self.part, self.join = proxy.silence, proxy.heal


class ByPackets:
    """A way through a network namespace: when parted, packets vanish."""

    def __init__(self, net: Namespace) -> None:
        self.part, self.join = net.drop, net.heal


@contextmanager
def leader_behind_proxy(stage: Stage) -> Iterator[tuple[Member, Route]]:
    """Start a worker that leads behind a proxy of its own, and two others; yield the leader and its way."""
    with Proxy(stage.dsn) as proxy:
        member = stage.start_worker(dsn=proxy.dsn)
        stage.leader()
        stage.start_worker()
        stage.start_worker()
        yield member, ByProxy(proxy)


@contextmanager
def leader_behind_wire(stage: Stage) -> Iterator[tuple[Member, Route]]:
    """Do the same with a network namespace; its packets go to a proxy that only passes them on."""
    with Namespace() as net, Proxy(stage.dsn, host=net.host) as proxy:
        member = stage.start_worker(dsn=proxy.dsn, prefix=net.prefix)
        stage.leader()
        stage.start_worker()
        stage.start_worker()
        yield member, ByPackets(net)


def partition(stage: Stage, member: Member, way: Route, *directions: Direction) -> None:
    """Cut the leader off from the server until every process has noticed, then restore the connection.

    The server may receive a claim of the cut-off worker only when the connection is restored. That worker is alive, and
    does not know of the claim. The leader takes this claim back when it next looks for such claims, which it does
    seldom.
    """
    stage.findings.settings["stuck_s"] = claims.SELDOM * stage.reap_s + SLACK_S
    run = stage.enqueue("hold", gate="partition")
    stage.wait(lambda: stage.events(run), 15, "the held run to start")
    term, parted_at = stage.one(TERM), stage.clock()
    way.part(*directions)
    stage.wait(lambda: stage.one(TERM) > term, 30, "a new leader")
    stage.figure("new leader", stage.clock() - parted_at, bound=NEW_LEADER_S)
    if stage.events(run)[0] == member.pid:
        stage.wait(lambda: len(stage.events(run)) > 1, 30, "the parted worker's run to start again")
        stage.figure("its run on another worker", stage.clock() - parted_at)
    stage.wait(lambda: stage.clock() > parted_at + CUT_OFF_S, 30, "the end of the partition")
    way.join()
    joined_at = stage.clock()
    stage.open_gate("partition")
    stage.wait(lambda: has_ended_run_since(stage, member, joined_at), 60, "the parted worker to work again")
    stage.figure("at work again", stage.clock() - joined_at, bound=45.0)
    stage.wait(lambda: stage.state(run) == "succeeded", 30, "the held run to succeed")


def has_ended_run_since(stage: Stage, member: Member, since: float) -> bool:
    """Check whether the worker has ended a run since this time of the database's clock."""
    query = "SELECT count(*) FROM chaos.ledger WHERE event = 'end' AND pid = %s AND at > to_timestamp(%s)"
    return bool(stage.one(query, member.pid, since))


@fault("partition", tier="full", workers=0)
def partition_both(stage: Stage) -> None:
    """Hang the leader's connections both ways: another leads within 12 s, and its runs are taken over."""
    with leader_behind_proxy(stage) as (member, way):
        partition(stage, member, way, "up", "down")


@fault("partition-up", tier="full", workers=0)
def partition_up(stage: Stage) -> None:
    """Deliver nothing that the leader sends; it receives everything: another leads within 12 s."""
    with leader_behind_proxy(stage) as (member, way):
        partition(stage, member, way, "up")


@fault("partition-down", tier="full", workers=0)
def partition_down(stage: Stage) -> None:
    """Deliver no answers to the leader: another leads within 12 s."""
    with leader_behind_proxy(stage) as (member, way):
        partition(stage, member, way, "down")


@fault("packets-dropped", tier="full", needs=("root", "netns"), workers=0)
def packets_dropped(stage: Stage) -> None:
    """Drop packets from and to the leader: another leads within 12 s, and its runs are taken over."""
    with leader_behind_wire(stage) as (member, way):
        partition(stage, member, way, "up", "down")


@fault("packets-dropped-up", tier="full", needs=("root", "netns"), workers=0)
def packets_dropped_up(stage: Stage) -> None:
    """Drop packets from the leader: another leads within 12 s."""
    with leader_behind_wire(stage) as (member, way):
        partition(stage, member, way, "up")


@fault("packets-dropped-down", tier="full", needs=("root", "netns"), workers=0)
def packets_dropped_down(stage: Stage) -> None:
    """Drop packets to the leader; its statements arrive: another leads within 12 s."""
    with leader_behind_wire(stage) as (member, way):
        partition(stage, member, way, "down")


@fault("slow-link", tier="full")
def slow_link(stage: Stage) -> None:
    """Delay by 200 ms each way for 12 s: no claim and no lead is lost, and work goes on."""
    stage.leader()
    term, before, crashed = stage.one(TERM), stage.one(ENDED), stage.one(CRASHED)
    stage.proxy.delay(0.2)
    began = stage.clock()
    run = stage.enqueue("brief", seconds=5.0)
    stage.wait(lambda: stage.clock() > began + 12, 30, "the slow time to pass")
    done, after = stage.one(ENDED) - before, stage.one(TERM)
    stage.proxy.heal()
    stage.wait(lambda: stage.state(run) == "succeeded", 20, "a run longer than the lease to succeed")
    stage.figure("runs ended a second at 400 ms there and back", done / 12)
    stage.figure("new terms", after - term, bound=0)
    stage.figure("claims lost", stage.one(CRASHED) - crashed, bound=0)


@fault("black-hole", tier="quick")
def black_hole(stage: Stage) -> None:
    """Accept connections and never answer: a new worker gives up and says why; the others are back within 10 s."""
    stage.leader()
    stage.proxy.black_hole()
    stage.proxy.cut()
    with stage.outage("nobody can connect"):
        began = stage.clock()
        newcomer = stage.fleet.launch(*stage.worker_options())
        newcomer.ended_by = "nothing to connect to"
        code = newcomer.ended(60)
        stage.figure("a new worker gives up", stage.clock() - began, bound=30.0)  # includes its start
        log_lines = newcomer.log.read_text(errors="replace").strip().splitlines() or [""]
        stage.note(f"it ended with {code}: {log_lines[-1]}")
        stage.figure("a new worker that ends well without a server", int(code == 0), bound=0)
        stage.proxy.heal()
    await_all_working(stage)


@fault("outage-of-two-leases", tier="full")
def outage(stage: Stage) -> None:
    """Cut the server off for two leases: outcomes of that time count; only runs longer than their lease run again."""

    def cut_off() -> None:
        stage.proxy.refuse()
        stage.proxy.cut()

    two_leases(stage, cut_off)


@fault("silence-of-two-leases", tier="quick")
def silence(stage: Stage) -> None:
    """Do the same, but break no connection: the leader stays, and must not reap before it hears of the others."""
    two_leases(stage, stage.proxy.black_hole)


def two_leases(stage: Stage, begin: Callable[[], None]) -> None:
    """Make the server unreachable for two leases, by calling `begin`.

    Two runs per worker end in this time, and one run lasts longer than its lease.
    """
    stage.leader()
    lease = stage.options.lease_s or 30
    stage.wait(lambda: stage.one("SELECT count(*) FROM pgsched.runs WHERE phase < 3") < 8, 20, "the load to be light")
    repeated, crashed = stage.one(REPEATED), stage.one(CRASHED)
    finishing = [stage.enqueue("brief", seconds=lease / 2) for _ in range(stage.options.workers * 2)]
    lost = stage.enqueue("hold", gate="outage")
    stage.wait(lambda: all(stage.events(run) for run in [*finishing, lost]), 15, "runs to start")
    with stage.outage("the server is out of reach"):
        began = stage.clock()
        begin()
        stage.wait(lambda: stage.clock() > began + 2 * lease, 3 * lease + 10, "two leases")
        stage.proxy.heal()
    await_all_working(stage)
    stage.open_gate("outage")
    stage.wait(lambda: stage.state(lost) == "succeeded", 30, "the interrupted run to succeed")
    stage.wait(lambda: all(stage.state(run) == "succeeded" for run in finishing), 20, "what ended meanwhile to count")
    twice = [run for run in finishing if len(stage.events(run)) > 1]
    stage.figure("finished meanwhile, and run again", len(twice), bound=0)
    stage.figure("runs started twice (one outlasts its lease)", stage.one(REPEATED) - repeated, bound=1)
    stage.figure("claims reaped", stage.one(CRASHED) - crashed, bound=0)


def await_all_working(stage: Stage, bound: float = 10.0) -> None:
    """Wait until every worker runs something again; record the time (at most `bound` seconds)."""
    back_at = stage.clock()
    for member in stage.workers:
        what = f"worker {member.pid} to work again"
        stage.wait(lambda m=member: has_ended_run_since(stage, m, back_at), bound + 30, what)  # type: ignore[misc]
    stage.figure("everybody at work again", stage.clock() - back_at, bound=bound)
