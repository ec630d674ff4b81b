"""What programs coordinate with: locks, elections, barriers, counters, values, groups and item queues.

They are reached through an App: `app.lock("payroll")`. All of them hang on sessions, which a thread renews. The names
here are those of their types, for annotations: `def lead(election: Election) -> None`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgsched.db.queries.recipes.items import ItemCounts as ItemCounts
    from pgsched.db.queries.recipes.locks import Contender as Contender
    from pgsched.db.queries.recipes.store import Entry as Entry
    from pgsched.recipes.barrier import Barrier as Barrier
    from pgsched.recipes.double_barrier import DoubleBarrier as DoubleBarrier
    from pgsched.recipes.election import Election as Election
    from pgsched.recipes.items.item import Item as Item
    from pgsched.recipes.items.item_queue import ItemQueue as ItemQueue
    from pgsched.recipes.lock import Lock as Lock
    from pgsched.recipes.party import Member as Member
    from pgsched.recipes.party import Party as Party
    from pgsched.recipes.shared_values import Counter as Counter
    from pgsched.recipes.shared_values import Value as Value
    from pgsched.recipes.store import Store as Store
    from pgsched.recipes.watch import Change as Change
    from pgsched.recipes.watch import Watch as Watch

_HOMES = {
    "Barrier": "pgsched.recipes.barrier",
    "Change": "pgsched.recipes.watch",
    "Contender": "pgsched.db.queries.recipes.locks",
    "Counter": "pgsched.recipes.shared_values",
    "DoubleBarrier": "pgsched.recipes.double_barrier",
    "Election": "pgsched.recipes.election",
    "Entry": "pgsched.db.queries.recipes.store",
    "Item": "pgsched.recipes.items.item",
    "ItemCounts": "pgsched.db.queries.recipes.items",
    "ItemQueue": "pgsched.recipes.items.item_queue",
    "Lock": "pgsched.recipes.lock",
    "Member": "pgsched.recipes.party",
    "Party": "pgsched.recipes.party",
    "Store": "pgsched.recipes.store",
    "Value": "pgsched.recipes.shared_values",
    "Watch": "pgsched.recipes.watch",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - names, imported when they are first used


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pgsched.recipes' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
