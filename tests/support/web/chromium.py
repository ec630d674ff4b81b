"""A headless chromium, and what `pgsched web` said of where it listens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PATIENCE_MS = 30_000


@contextmanager
def browser() -> Iterator[Any]:
    """A headless browser for the time of the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        begun = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield begun
        begun.close()


def address(said: Path) -> str | None:
    """The console's address, once it has said it."""
    _, found, rest = said.read_text().partition("pgsched web: ")
    return rest.split()[0].rstrip("/") if found and "\n" in rest else None
