"""Elect one leader among processes: a lock whose fence is the number of the leader's term.

Invariant: a term's writes that call `assert_held` are refused as soon as the next term has begun.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

from pgsched.recipes.lock import Lock

R = TypeVar("R")


class Election(Lock):
    """An election. The leader is the process that holds it; the others stand in line, in their order.

    Use it with `with` or `async with`: the block runs while this process leads. Look at `lost` in the block, or call
    `wait_lost` in a thread: a leader that was cut off must stop by itself.
    """

    _kind: ClassVar[str] = "election"

    @property
    def term(self) -> int:
        """The number of this leader's term; higher than that of every term before. Raises LeaseLost."""
        return self.fence

    def run(self, lead: Callable[[Election], R]) -> R:
        """Wait to be elected, call `lead` with this object, resign, and return what it returned.

        Raises TimeoutError, and LeaseLost where the term was lost before `lead` returned.
        """
        with self:
            return lead(self)

    async def run_async(self, lead: Callable[[Election], Awaitable[R]]) -> R:
        """Wait to be elected, await `lead`, and resign: the asyncio form of `run`."""
        async with self:
            return await lead(self)
