"""An Event for each attempt, of which nearly all are never waited for: making one costs as much as a short handler."""

from __future__ import annotations

import threading
from typing import NoReturn


class Signal(threading.Event):
    """As `threading.Event`, which it makes of itself when somebody sets it or waits for it."""

    def __init__(self) -> None:
        pass

    def _made(self) -> threading.Event | None:
        return self.__dict__.get("event")

    def _make(self) -> threading.Event:
        # setdefault is one step: of threads that are here at once, one makes it, and no lock is to be held over a fork
        return self._made() or self.__dict__.setdefault("event", threading.Event())

    def is_set(self) -> bool:
        event = self._made()
        return event is not None and event.is_set()

    def set(self) -> None:
        self._make().set()

    def clear(self) -> None:
        event = self._made()
        if event is not None:
            event.clear()

    def wait(self, timeout: float | None = None) -> bool:
        return self._make().wait(timeout)

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle a signal: a copy would never be set")  # as an Event, for its lock

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self.is_set() else 'unset'}>"
