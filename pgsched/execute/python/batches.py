"""Batched handlers: gathers attempts into groups, and serves each group with one call of the handler.

Invariant: one call serves many attempts, and each attempt is settled by itself.

A group is called when it has `size` attempts, or when its first attempt has waited `wait_s`. An attempt in a group
takes no place of the worker; the call takes one.

- An attempt that is cancelled alone leaves the group at once, and the call goes on for the others.
- When all attempts of a call are cancelled, the call is stopped and they wait for its end. No other worker may get them
  while the call still works on them.
- At a timeout they wait for the end of the call in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pgsched.app.batch_item import Item
from pgsched.app.hooks import call_catching
from pgsched.app.rules.batch_options import Gathering
from pgsched.app.rules.retrying import RetryRule
from pgsched.app.run import Run
from pgsched.core.model import Claim, Outcome, Result, Unreadable
from pgsched.errors import TaskError
from pgsched.execute.base import CANCELLED_ITSELF, Places, get_kill_after_s
from pgsched.execute.outcomes import outcome_of_copied_value, outcome_of_error, outcome_of_value, refusal_outcome
from pgsched.execute.python.handler import Handler
from pgsched.threads import Threads

MemberResult = tuple[Outcome, BaseException | None]  # the outcome of an attempt, and the exception behind it, if any
# A context manager around a call for these claims. It yields a function that is given what the call raises.
Around = Callable[[Sequence[Claim]], AbstractContextManager[Callable[[BaseException | None], object]]]
MARGIN_S = 5.0


class Member:
    """One attempt in a group.

    - `future`: its outcome, and the exception behind it.
    - `stopped`: the attempt was cancelled.
    """

    __slots__ = ("claim", "future", "item", "stopped")

    def __init__(self, claim: Claim, run: Run, rule: RetryRule) -> None:
        loop = asyncio.get_running_loop()
        self.claim = claim
        self.stopped = False
        self.future: asyncio.Future[MemberResult] = loop.create_future()

        def say(value: Any, error: BaseException | None) -> None:
            outcome = outcome_of_copied_value(value) if error is None else outcome_of_error(error, rule, claim.attempt)
            loop.call_soon_threadsafe(self.tell, outcome, error)

        self.item = Item(claim.args, run, say)

    def tell(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Set the attempt's outcome; only the first call counts."""
        if not self.future.done():
            self.future.set_result((outcome, error))


class Batch:
    """The attempts that one call will serve."""

    def __init__(self, handler: Handler, how: Gathering) -> None:
        self.handler = handler
        self.how = how
        self.members: list[Member] = []
        self.full = asyncio.Event()
        self.called = False
        self.all_stopped = asyncio.Event()  # set once every attempt is stopped or has its outcome
        self.call_ended = asyncio.Event()  # set when the call has ended, or is no longer waited for

    def __len__(self) -> int:
        return len(self.members)

    def add(self, member: Member) -> None:
        """Add an attempt; a full group is called at once."""
        self.members.append(member)
        if len(self.members) >= self.how.size:
            self.full.set()

    async def leave(self, member: Member) -> None:
        """Take a stopped attempt out of the group.

        The last attempts of a running call wait for its end.
        """
        member.item.run.cancelled.set()
        member.stopped = True
        if not self.called:
            self.members.remove(member)
            return
        await asyncio.sleep(0)  # let attempts that are stopped together all come here first
        if all(other.stopped or other.future.done() for other in self.members):
            self.all_stopped.set()
            await self.call_ended.wait()

    def tell(self, value: Any, error: BaseException | None) -> None:
        """Give each attempt without an outcome its share of what the call returned or raised."""
        count, results, rule = len(self.members), list[MemberResult](), self.handler.retry_rule
        if error is not None:
            results = [(outcome_of_error(error, rule, member.claim.attempt), error) for member in self.members]
        elif value is None:
            results = [(outcome_of_value(None), None)] * count
        elif isinstance(value, list | tuple) and len(value) == count:
            results = [
                (outcome_of_error(member_value, rule, member.claim.attempt), member_value)
                if isinstance(member_value, BaseException)
                else (outcome_of_value(member_value), None)
                for member, member_value in zip(self.members, value, strict=True)
            ]
        else:
            what = f"{len(value)} of them" if isinstance(value, list | tuple) else type(value).__name__
            wrong = TaskError(f"batch: a handler returns None or a list of {count} results, not {what}")
            results = [(refusal_outcome(str(wrong)), wrong)] * count
        for member, (outcome, why) in zip(self.members, results, strict=True):
            member.tell(outcome, why)

    def tell_all(self, outcome: Outcome) -> None:
        """Give every attempt without an outcome this one."""
        for member in self.members:
            member.tell(outcome)

    def timeout_s(self) -> float | None:
        """Return the seconds that the call may take: the shortest timeout of its runs; None without a timeout."""
        given = [m.claim.timeout.total_seconds() for m in self.members if m.claim.timeout is not None]
        return min(given, default=None)

    def kill_after_s(self) -> float:
        """Return the seconds that the call may take to stop: the longest `kill_after` of its runs."""
        return max(get_kill_after_s(member.claim) for member in self.members)


class Batches:
    """The groups of one executor.

    - `batched_tasks`: the names of the tasks that are batched.
    - `places`: the places of the worker, set by the worker.
    - `call_context`: a context manager around each call (worker/observers/tracing.py).

    `on_error(run, error)` is awaited for each attempt that failed by an exception, before the attempt is settled.
    """

    def __init__(
        self,
        tasks: Mapping[str, Any],
        threads: Threads[Any],
        on_abandon: Callable[[Any], None],
        on_error: Callable[[Run, BaseException], Awaitable[None]],
    ) -> None:
        self.batched_tasks = frozenset(
            name for name, task in tasks.items() if getattr(task, "gathering", None) is not None
        )
        self.places: Places | None = None
        self.call_context: Around = lambda claims: nullcontext(bool)  # worker/observers/tracing.py
        self._threads = threads
        self._on_abandon = on_abandon
        self._on_error = on_error
        self._open: dict[str, Batch] = {}
        self._drivers: set[asyncio.Task[None]] = set()

    async def execute(self, claim: Claim, handler: Handler, how: Gathering, run: Run) -> Outcome:
        """Let a call serve one attempt, together with others. Raises CancelledError where it is stopped."""
        if isinstance(claim.args, Unreadable):
            return refusal_outcome(f"args: {claim.args.reason}")
        group = self._open.get(claim.task)
        if group is None or group.full.is_set():
            group = self._open[claim.task] = Batch(handler, how)
            driver = asyncio.get_running_loop().create_task(self._drive(claim.task, group))
            self._drivers.add(driver)
            driver.add_done_callback(self._drivers.discard)
        member = Member(claim, run, handler.retry_rule)
        group.add(member)
        try:
            outcome, error = await asyncio.shield(member.future)  # an outcome that comes during a stop still counts
        except asyncio.CancelledError:
            await group.leave(member)
            if not member.future.done():
                raise
            outcome, error = member.future.result()
        if error is not None:
            await self._on_error(run, error)
        return outcome

    async def _drive(self, task: str, group: Batch) -> None:
        try:
            async with asyncio.timeout(group.how.wait_s):
                await group.full.wait()
        except TimeoutError:
            pass
        if self.places is not None:
            await self.places.take_place(group)
        try:
            if self._open.get(task) is group:
                del self._open[task]
            if group.members:
                await self._serve(group)
        except Exception as error:  # an error of pgsched's own: the runs must still get an outcome
            group.tell_all(Outcome(Result.CRASHED, error=f"executor failed: {type(error).__name__}: {error}"))
        finally:
            group.call_ended.set()
            if self.places is not None:
                self.places.give_place()

    async def _serve(self, group: Batch) -> None:
        group.called = True
        if self.places is not None:
            self.places.begin([member.claim for member in group.members])
        loop, timeout_s = asyncio.get_running_loop(), group.timeout_s()
        call, left = loop.create_task(self._call(group)), loop.create_task(group.all_stopped.wait())
        await asyncio.wait({call, left}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
        stopped = not call.done()
        timed_out = stopped and not group.all_stopped.is_set()
        if stopped:
            for member in group.members:
                member.item.run.cancelled.set()
            call.cancel()
            await asyncio.wait({call}, timeout=group.kill_after_s() + MARGIN_S)
        if not call.done():
            self._on_abandon(call)
        elif not call.cancelled():
            group.tell(*call.result())
        elif not stopped:  # the handler cancelled itself
            group.tell_all(Outcome(Result.FAILED, error=CANCELLED_ITSELF))
        if timed_out:
            group.tell_all(Outcome(Result.TIMED_OUT, error=f"timed out after {timeout_s or 0:g} s"))

    async def _call(self, group: Batch) -> tuple[Any, BaseException | None]:
        with self.call_context([member.claim for member in group.members]) as tell:
            found = await self._called(group)
            tell(found[1])
        return found

    async def _called(self, group: Batch) -> tuple[Any, BaseException | None]:
        """Call the handler; return what it returns, and what it raises."""
        items = [member.item for member in group.members]
        function = group.handler.function
        if group.handler.is_async:
            try:
                return await function(items), None
            except asyncio.CancelledError as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                return None, error
            except BaseException as error:
                return None, error
        try:
            work = self._threads.submit(lambda: call_catching(lambda: function(items)))
        except RuntimeError as error:  # no thread can be started
            return None, error
        try:
            found: tuple[Any, BaseException | None] = await asyncio.shield(work)
            return found
        except asyncio.CancelledError:
            await asyncio.wait({work}, timeout=group.kill_after_s())
            if not work.done():
                self._on_abandon(work)
            raise
