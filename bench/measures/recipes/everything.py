"""All measurements of `recipes`, one after another, on the same servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.install import Unavailable
from bench.measures.recipes.field import COMMITS, LOCKS, QUEUES, Coordinator, Field, fresh_name, programs, reports
from bench.measures.recipes.hand_over import hand_over
from bench.measures.recipes.idle_locks import idle_locks
from bench.measures.recipes.pairs import pairs
from bench.measures.recipes.queues import queues
from bench.measures.recipes.zookeeper import zookeeper
from bench.report import Result, log_step
from bench.server import Server


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    `seconds`: how long locks and queues are used. `warm_up`: seconds, for the compiler of ZooKeeper's virtual machine.
    """

    seconds: int
    rounds: int
    contenders: Sequence[int]
    idle_locks: int
    idle_seconds: int
    items: int
    warm_up: int


FULL = Sizes(5, 3, (2, 100), 10_000, 60, 4000, 15)
SMALL = Sizes(1, 1, (2, 6), 50, 1, 40, 1)


def recipes(server: Server, chosen: Sequence[Coordinator] | None, sizes: Sizes) -> Iterator[Result]:
    """Measure these contestants, or all; yield a table for each measurement. A reason for an absence is named once."""
    named: set[str] = set()
    for result in tables(server, chosen, sizes):
        absent: dict[str, str] = result.data["absent"]
        result.data["absent"] = {name: why for name, why in absent.items() if why not in named}
        named.update(absent.values())
        yield result


def tables(server: Server, chosen: Sequence[Coordinator] | None, sizes: Sizes) -> Iterator[Result]:
    """Measure these contestants, or all; yield a table for each measurement."""
    with ExitStack() as ends:
        wanted = [one for one in (*LOCKS, *QUEUES, COMMITS) if chosen is None or one in chosen]
        field = Field(server, None)
        if any(one.needs_zookeeper for one in wanted):
            try:
                field = Field(server, ends.enter_context(zookeeper()))
                warm_up(field, [one for one in wanted if one.needs_zookeeper], sizes.warm_up)
            except Unavailable as error:
                field = Field(server, None, str(error))
                log_step(f"recipes: {error}")
        locks = [one for one in LOCKS if one in wanted]
        if with_floor := [*locks, *([COMMITS] if COMMITS in wanted else [])]:
            yield pairs(field, with_floor, sizes.seconds, sizes.rounds)
        if locks:
            yield hand_over(field, locks, sizes.contenders, 2 * sizes.seconds, sizes.rounds)
            yield idle_locks(field, locks, sizes.idle_locks, sizes.idle_seconds, sizes.rounds)
        if lines := [one for one in QUEUES if one in wanted]:
            yield queues(field, lines, sizes.items, sizes.seconds, sizes.rounds)


def warm_up(field: Field, contestants: Sequence[Coordinator], seconds: int) -> None:
    """Use ZooKeeper for a while: its first answers come from code that is not compiled yet."""
    for one in contestants[:1]:
        with field.place(one) as address:
            verbs = [("pairs", {"name": fresh_name(), "seconds": seconds})]
            with programs(one, address, verbs) as processes:
                reports(processes)
