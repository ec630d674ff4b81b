"""Command classes with what all commands have in common: --tz, and options that are given once.

Invariant: no value of an option is dropped silently. Otherwise `--state dead --state missed` would show only the missed
runs. An option that may be repeated is declared as a list.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from pgsched.cli import times

ZONE = f"Zone in which times are read and shown. Default: {times.VARIABLE}, else UTC."


def zone_option() -> TyperOption:
    """Return the option --tz."""
    return TyperOption(
        param_decls=["--tz"], metavar="ZONE", help=ZONE, envvar=times.VARIABLE, expose_value=False, is_eager=True,
        callback=times.choose_zone_of_option,
    )  # fmt: skip


def takes_times(parameters: list[Any]) -> bool:
    """Check whether a command shows times: all do that read a database and print a result."""
    return {"dsn", "json"} <= {parameter.name for parameter in parameters}


class OnceCommand(TyperCommand):
    """A command that accepts each option of one value at most once, and --tz if it shows times."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if takes_times(self.params):
            self.params.append(zone_option())

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


class CommandGroup(TyperGroup):
    """A group that is a command, too, such as `worker` and `worker list`.

    Options before a subcommand would be dropped, so they are refused.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand, after refusing options that stand before it."""
        found = super().resolve_command(ctx, args)
        for param in self.params:
            source = ctx.get_parameter_source(param.name)
            if source is not None and source.name == "COMMANDLINE":
                option = param.opts[0]
                ctx.fail(f"{option} goes after the subcommand: {ctx.command_path} {found[0]} {option}")
        return found


class ViewGroup(CommandGroup):
    """A group that is also a command which shows times, such as `alerts`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(zone_option())
