"""An Event for each attempt, of which nearly all are never waited for: making one costs as much as a short handler."""

from __future__ import annotations

import threading


class Signal(threading.Event):
    """As `threading.Event`, which it makes of itself when somebody sets it or waits for it."""

    def __init__(self) -> None:
        self._event: threading.Event | None = None

    def _made(self) -> threading.Event:
        if self._event is None:
            with _making:
                self._event = self._event or threading.Event()
        return self._event

    def is_set(self) -> bool:
        return self._event is not None and self._event.is_set()

    def set(self) -> None:
        self._made().set()

    def clear(self) -> None:
        if self._event is not None:
            self._event.clear()

    def wait(self, timeout: float | None = None) -> bool:
        return self._made().wait(timeout)

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self.is_set() else 'unset'}>"


_making = threading.Lock()
