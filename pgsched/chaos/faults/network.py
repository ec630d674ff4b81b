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


class Way(Protocol):
    """How one worker reaches the server."""

    def part(self, *directions: Direction) -> None: ...
    def join(self) -> None: ...


class ByProxy:
    """Connections stay up, and what is said does not arrive."""

    def __init__(self, proxy: Proxy) -> None:
        self.part, self.join = proxy.silence, proxy.heal


class ByPackets:
    """Packets vanish."""

    def __init__(self, net: Namespace) -> None:
        self.part, self.join = net.drop, net.heal


@contextmanager
def leader_behind_proxy(stage: Stage) -> Iterator[tuple[Member, Way]]:
    """A worker that leads and has a way of its own, and two others."""
    with Proxy(stage.dsn) as proxy:
        member = stage.start_worker(dsn=proxy.dsn)
        stage.leader()
        stage.start_worker()
        stage.start_worker()
        yield member, ByProxy(proxy)


@contextmanager
def leader_behind_wire(stage: Stage) -> Iterator[tuple[Member, Way]]:
    """The same in a network namespace, whose packets go to a proxy that only passes on."""
    with Namespace() as net, Proxy(stage.dsn, host=net.host) as proxy:
        member = stage.start_worker(dsn=proxy.dsn, prefix=net.prefix)
        stage.leader()
        stage.start_worker()
        stage.start_worker()
        yield member, ByPackets(net)


def partition(stage: Stage, member: Member, way: Way, *directions: Direction) -> None:
    """Part the leader from the server for so long that everybody notices, and join it again.

    The server may get a claim of the parted worker only when it is joined again. That worker lives, and does not know
    of the claim: the leader takes it back at the next of its seldom looks.
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
    stage.wait(lambda: at_work(stage, member, joined_at), 60, "the parted worker to work again")
    stage.figure("at work again", stage.clock() - joined_at, bound=45.0)
    stage.wait(lambda: stage.state(run) == "succeeded", 30, "the held run to succeed")


def at_work(stage: Stage, member: Member, since: float) -> bool:
    """Has it run something since this instant of the database's clock?"""
    query = "SELECT count(*) FROM chaos.ledger WHERE event = 'end' AND pid = %s AND at > to_timestamp(%s)"
    return bool(stage.one(query, member.pid, since))


@fault("partition", tier="full", workers=0)
def partition_both(stage: Stage) -> None:
    """The leader's connections hang both ways: another one leads within 12 s, and its runs are taken over."""
    with leader_behind_proxy(stage) as (member, way):
        partition(stage, member, way, "up", "down")


@fault("partition-up", tier="full", workers=0)
def partition_up(stage: Stage) -> None:
    """Nothing that the leader says arrives, and it hears everything: another one leads within 12 s."""
    with leader_behind_proxy(stage) as (member, way):
        partition(stage, member, way, "up")


@fault("partition-down", tier="full", workers=0)
def partition_down(stage: Stage) -> None:
    """The leader hears no answer to what it does: another one leads within 12 s."""
    with leader_behind_proxy(stage) as (member, way):
        partition(stage, member, way, "down")


@fault("packets-dropped", tier="full", needs=("root", "netns"), workers=0)
def packets_dropped(stage: Stage) -> None:
    """Packets from and to the leader vanish: another one leads within 12 s, and its runs are taken over."""
    with leader_behind_wire(stage) as (member, way):
        partition(stage, member, way, "up", "down")


@fault("packets-dropped-up", tier="full", needs=("root", "netns"), workers=0)
def packets_dropped_up(stage: Stage) -> None:
    """Packets from the leader vanish: another one leads within 12 s."""
    with leader_behind_wire(stage) as (member, way):
        partition(stage, member, way, "up")


@fault("packets-dropped-down", tier="full", needs=("root", "netns"), workers=0)
def packets_dropped_down(stage: Stage) -> None:
    """Packets to the leader vanish, its statements arrive: another one leads within 12 s."""
    with leader_behind_wire(stage) as (member, way):
        partition(stage, member, way, "down")


@fault("slow-link", tier="full")
def slow_link(stage: Stage) -> None:
    """200 ms there and 200 ms back for 12 s: nobody loses a claim or the lead, and work goes on."""
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
    """Every connection is cut, and new ones are taken and never answered: a new worker gives up and says why, the
    others wait and come back within 10 s."""
    stage.leader()
    stage.proxy.black_hole()
    stage.proxy.cut()
    with stage.outage("nobody can connect"):
        began = stage.clock()
        newcomer = stage.fleet.launch(*stage.worker_options())
        newcomer.ended_by = "nothing to connect to"
        code = newcomer.ended(60)
        stage.figure("a new worker gives up", stage.clock() - began, bound=30.0)  # its start is in it
        log_lines = newcomer.log.read_text(errors="replace").strip().splitlines() or [""]
        stage.note(f"it ended with {code}: {log_lines[-1]}")
        stage.figure("a new worker that ends well without a server", int(code == 0), bound=0)
        stage.proxy.heal()
    came_back(stage)


@fault("outage-of-two-leases", tier="full")
def outage(stage: Stage) -> None:
    """The server is out of reach for two leases while all workers are well: what they finish meanwhile counts, and
    nothing is run twice but what outlasted its lease."""

    def cut_off() -> None:
        stage.proxy.refuse()
        stage.proxy.cut()

    two_leases(stage, cut_off)


@fault("silence-of-two-leases", tier="quick")
def silence(stage: Stage) -> None:
    """The same, but no connection breaks: the leader goes on leading, and must not reap before the others are heard."""
    two_leases(stage, stage.proxy.black_hole)


def two_leases(stage: Stage, begin: Callable[[], None]) -> None:
    """Out of reach from `begin` on for so long, with runs that end meanwhile and one that does not."""
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
    came_back(stage)
    stage.open_gate("outage")
    stage.wait(lambda: stage.state(lost) == "succeeded", 30, "the interrupted run to succeed")
    stage.wait(lambda: all(stage.state(run) == "succeeded" for run in finishing), 20, "what ended meanwhile to count")
    twice = [run for run in finishing if len(stage.events(run)) > 1]
    stage.figure("finished meanwhile, and run again", len(twice), bound=0)
    stage.figure("runs started twice (one outlasts its lease)", stage.one(REPEATED) - repeated, bound=1)
    stage.figure("claims reaped", stage.one(CRASHED) - crashed, bound=0)


def came_back(stage: Stage, bound: float = 10.0) -> None:
    """Every worker runs something again."""
    back_at = stage.clock()
    for member in stage.workers:
        stage.wait(lambda m=member: at_work(stage, m, back_at), bound + 30, f"worker {member.pid} to work again")  # type: ignore[misc]
    stage.figure("everybody at work again", stage.clock() - back_at, bound=bound)
