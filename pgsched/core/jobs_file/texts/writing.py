"""Write the values of a file as YAML or TOML.

Invariant: what is written reads back as the same values (tests/unit/core/jobs_file). So a text that the core schema of
YAML 1.2, or YAML 1.1, takes for a number, a date or a truth value is put into quotes.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from pgsched.errors import InputError

DUMPER = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
WIDTH = 100
# The plain texts that YAML 1.2 reads as numbers, and that the resolver of PyYAML (YAML 1.1) leaves alone.
NUMBER_OF_CORE = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)


class _Dumper(DUMPER):  # type: ignore[misc,valid-type]  # PyYAML has no types
    """PyYAML's dumper without anchors and aliases, and with our quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values in full."""
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if NUMBER_OF_CORE.fullmatch(text) or text == "<<":
        style = '"'
    elif "\n" in text.rstrip("\n"):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: Any, values: list[Any]) -> Any:
    short = all(isinstance(one, (str, int, float, bool)) for one in values) and len(str(values)) < WIDTH - 20
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=short)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def write_yaml(data: dict[str, Any]) -> str:
    """Return the values as YAML."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH, default_flow_style=False
    )
    return text


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
