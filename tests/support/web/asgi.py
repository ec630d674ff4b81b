"""Requests to an ASGI application in the test's own event loop, many at a time."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class Request:
    """One GET request. `answer`: the task of (status, JSON); `leave`: set it to close the client's connection."""

    def __init__(self, app: Any, path: str, **headers: str) -> None:
        self._app, self._path = app, path
        self._headers = [(b"host", b"localhost")]
        self._headers += [(name.encode(), value.encode()) for name, value in headers.items()]
        self._begun = False
        self.leave = asyncio.Event()
        self.messages: list[Any] = []
        self.answer: asyncio.Task[tuple[int, Any]] = asyncio.create_task(self._ask())

    async def _ask(self) -> tuple[int, Any]:
        path, _, query = self._path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "headers": self._headers, "client": ("127.0.0.1", 1),
            "server": ("localhost", 80), "scheme": "http", "http_version": "1.1",
        }  # fmt: skip
        await self._app(scope, self._receive, self._send)
        body = b"".join(one.get("body", b"") for one in self.messages)
        return self.messages[0]["status"], json.loads(body) if body else None

    async def _receive(self) -> Any:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.messages.append(message)
