"""Is a process alive, and may it claim? The rule: a reason for every no, and no answer that needs the database.

Alive: its event loop turns and its heartbeats are answered. Ready: alive, it has registered itself in a schema of the
right version, and it takes runs. What is wrong with the whole system is told beside that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pgsched.control_characters import clean

LOOP_S = 10.0
STARTING = "it has not come to work yet"


@dataclass(frozen=True, slots=True)
class Health:
    """What a process says of itself: an empty list means that nothing is wrong. `system`: what is wrong with the whole
    system, as far as it knows; that makes no process unfit."""

    alive: list[str]
    ready: list[str]
    system: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes]:
        """The HTTP status and body of /healthz or /readyz."""
        if path == "/healthz":
            return (503, lines(self.alive)) if self.alive else (200, b"ok\n")
        wrong, system = [*self.alive, *self.ready], [f"system: {line}" for line in self.system]
        return (503, lines([*wrong, *system])) if wrong else (200, lines(["ok", *system]))


def lines(reasons: list[str]) -> bytes:
    """One a line, whatever is in them."""
    return "".join(f"{clean(' '.join(reason.split()))}\n" for reason in reasons).encode()


def starting() -> Health:
    """A process that has just begun: not to be killed for it, and not ready."""
    return Health([], [STARTING])


def together(children: Mapping[str, Health | None]) -> Health:
    """Of the workers of one parent: it is alive, and ready, as long as one of them is. None: one gave no answer."""
    answers = {name: health or Health(["it gives no answer"], []) for name, health in children.items()}
    if not answers:
        return Health([], ["no worker has been started"])
    alive = [f"process {name}: {reason}" for name, health in answers.items() for reason in health.alive]
    ready = [f"process {name}: {reason}" for name, health in answers.items() for reason in health.ready]
    return Health(
        alive if all(health.alive for health in answers.values()) else [],
        [] if any(not (health.alive or health.ready) for health in answers.values()) else ready,
        list(dict.fromkeys(line for health in answers.values() for line in health.system)),
    )


def as_json(health: Health) -> bytes:
    """For the parent."""
    return json.dumps(asdict(health)).encode()


def from_json(text: Mapping[str, Any]) -> Health:
    """What a worker has told its parent."""
    return Health(list(text["alive"]), list(text["ready"]), list(text.get("system", ())))
