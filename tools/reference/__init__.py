"""The reference pages that are generated from the code: `python -m tools.reference` writes them.

Invariant: the text depends on the code alone, not on the version of a library or on the terminal. Therefore
tests/unit/docs/test_reference.py can compare each page with what the code generates now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.reference import command_line, configuration, exceptions, http_api

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": command_line.page,
    "http-api.md": http_api.page,
    "openapi.json": http_api.openapi,
    "configuration.md": configuration.page,
    "exceptions.md": exceptions.page,
}
