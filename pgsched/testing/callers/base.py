"""`CallerTransaction`: what becomes of the enqueues that were made in a transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

State = Literal["open", "committed", "rolled back"]


class CallerTransaction:
    """What becomes of enqueues in the caller's transaction, or in a savepoint of it: all of them have the same fate.

    `handle`: the connection or session that names the transaction.
    `is_async`: the transaction ends in a coroutine.
    `state`: what is known so far; `Transactions.look` finds out more.
    """

    is_async = False

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.state: State = "open"


Report = Callable[[CallerTransaction], None]  # called after a commit, by the libraries that offer a hook for it
