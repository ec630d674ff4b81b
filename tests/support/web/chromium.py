"""A headless chromium, and the address at which `pgsched web` listens."""

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
    """Yield a headless browser, and close it after the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        begun = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield begun
        begun.close()


def address(said: Path) -> str | None:
    """Return the address that the console has written to its log, None as long as it has not."""
    _, found, rest = said.read_text().partition("pgsched web: ")
    return rest.split()[0].rstrip("/") if found and "\n" in rest else None
