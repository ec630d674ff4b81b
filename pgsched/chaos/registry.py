"""The faults by name. Each module of `faults/` declares its own; `load_faults` imports these modules."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pgsched.chaos import faults
from pgsched.errors import InputError

if TYPE_CHECKING:
    from pgsched.chaos.stage import Stage

Tier = Literal["quick", "full"]
NEEDS = ("root", "netns", "clock", "standby", "tmpfs")


@dataclass(frozen=True, slots=True)
class Options:
    """How the stage of one fault is set up. Durations are in seconds."""

    server: str = "private"  # a shared one; or plain, standby, tmpfs, clock: its own (servers.py)
    direct: bool = False  # True: no proxy between the processes and the server
    workers: int = 3
    concurrency: int = 4
    lease_s: float | None = 3.0  # None: the product's default, for this and the next two
    reap_s: float | None = 0.5
    poll_s: float | None = 0.2
    jobs: int = 6  # each with a slot every one to three seconds
    rate: float = 20.0  # enqueues per second
    drain_s: float = 60.0  # all runs must have ended this long after the fault
    separate_ledger: bool = False  # True: the ledger on a server of its own, for faults that replace the first server


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its function, what it needs of the machine, and the options of its stage."""

    name: str
    run: Callable[[Stage], None]
    tier: Tier
    needs: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)

    @property
    def summary(self) -> str:
        """Return what happens and what must hold: the first paragraph of the function's docstring."""
        return " ".join((self.run.__doc__ or "").strip().split("\n\n")[0].split())


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, *, tier: Tier, needs: tuple[str, ...] = (), **options: Any
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Declare the decorated function as a fault. `options` are the fields of `Options`."""

    def declare(run: Callable[[Stage], None]) -> Callable[[Stage], None]:
        assert name not in FAULTS, f"two faults are called {name}"
        assert run.__doc__, f"the fault {name} has no docstring"
        assert set(needs) <= set(NEEDS), f"the fault {name} needs {needs}"
        FAULTS[name] = Fault(name, run, tier, needs, Options(**options))
        return run

    return declare


def load_faults() -> dict[str, Fault]:
    """Return every fault, in the order of modules and of declaration."""
    for module in sorted(found.name for found in pkgutil.iter_modules(faults.__path__)):
        importlib.import_module(f"{faults.__name__}.{module}")
    return dict(FAULTS)


def select_faults(names: list[str], tier: Tier) -> list[Fault]:
    """Return the named faults, or without names all faults of the tier. "full" includes the quick faults.

    Raises InputError for an unknown name.
    """
    known = load_faults()
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"faults: there is no {', '.join(unknown)}; `pgsched chaos --list` names them", "faults")
    if names:
        return [known[name] for name in names]
    return [one for one in known.values() if tier == "full" or one.tier == "quick"]
