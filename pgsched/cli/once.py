"""A command class that refuses an option given twice.

Invariant: no value of an option is dropped silently. Otherwise `--state dead --state missed` would show only the missed
runs. An option that may be repeated is declared as a list.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperOption


class OnceCommand(TyperCommand):
    """A command that accepts each option of one value at most once."""

    def make_parser(self, ctx: Any) -> Any:
        """Return the parser of the command, changed to refuse a second value of an option."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            found = parse(args)
            order = [param for param in found[2] if isinstance(param, TyperOption)]
            for param in order:
                if not (param.multiple or param.is_flag or param.count) and order.count(param) > 1:
                    ctx.fail(f"Option {param.opts[0]!r} is given {order.count(param)} times, and takes one value")
            return found

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser
