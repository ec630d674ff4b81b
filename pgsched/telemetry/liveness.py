"""Health of a process: whether it is alive, and whether it is ready to claim.

Invariant: every negative answer gives a reason, and no answer needs the database.

- Alive: the event loop turns, and the heartbeat goes on. A database that is down leaves a process alive, because a
  restart would not help.
- Ready: the process is alive and takes runs. It has registered itself in a schema of the right version, and the
  database answered within a lease.

Problems of the whole system are reported in addition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pgsched.control_characters import escape_controls

LOOP_S = 10.0
STARTING = "it has not come to work yet"


@dataclass(frozen=True, slots=True)
class Health:
    """The state of one process, as lists of reasons; an empty list means that nothing is wrong.

    `alive`: reasons why the process is not alive.
    `ready`: reasons why it is not ready.
    `system`: known problems of the whole system; they make no process unfit.
    """

    alive: list[str]
    ready: list[str]
    system: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes]:
        """Return the HTTP status and body of /healthz or /readyz."""
        if path == "/healthz":
            return (503, lines(self.alive)) if self.alive else (200, b"ok\n")
        wrong, system = [*self.alive, *self.ready], [f"system: {line}" for line in self.system]
        return (503, lines([*wrong, *system])) if wrong else (200, lines(["ok", *system]))


def lines(reasons: list[str]) -> bytes:
    """Return the reasons, one line each, with control characters escaped."""
    return "".join(f"{escape_controls(' '.join(reason.split()))}\n" for reason in reasons).encode()


def starting_health() -> Health:
    """Return the health of a process that has just begun: alive, so that it is not killed, but not ready."""
    return Health([], [STARTING])


def combine_children(children: Mapping[str, Health | None]) -> Health:
    """Return the health of a parent: alive, and ready, as long as one of its workers is.

    `children`: by name of the worker; None where it gave no answer.
    """
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
    """Return the health as JSON, for the parent."""
    return json.dumps(asdict(health)).encode()


def from_json(text: Mapping[str, Any]) -> Health:
    """Return the health that a worker sent to its parent."""
    return Health(list(text["alive"]), list(text["ready"]), list(text.get("system", ())))
