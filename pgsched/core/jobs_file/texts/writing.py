"""Write the values of a file as YAML or TOML.

Invariant: what is written reads back as the same values (tests/unit/core/jobs_file).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgsched.core.jobs_file.texts.yaml_writer import entry_lines
from pgsched.errors import InputError

OBJECTS = 2  # levels of mappings that are blocks: a section, and the objects in it


def write_yaml(data: Mapping[str, Any]) -> str:
    """Return the values as YAML."""
    return "".join(f"{line}\n" for name, value in data.items() for line in entry_lines(name, value, 0, OBJECTS))


def write_toml(data: dict[str, Any]) -> str:
    """Return the values as TOML. Raises InputError for null, which TOML has not."""
    import tomli_w

    null = _find_null(data, ())
    if null is not None:
        raise InputError(f"format: {'.'.join(null)} holds null, which TOML has not: use --format yaml", "format")
    return tomli_w.dumps(data)


def _find_null(data: Any, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the path of a null, None if there is none."""
    left = [(data, path)]
    while left:
        value, path = left.pop()
        if value is None:
            return path
        if isinstance(value, dict):
            left += [(inner, (*path, key)) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(inner, (*path, str(at))) for at, inner in enumerate(value)]
    return None
