"""Generate docs/reference/cli.md: every command with its arguments and options, from the tree of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from pgsched.cli import EPILOG, make_app
from tools.reference.markdown import code, prose, table
from tools.reference.markdown import page as whole

INTRODUCTION = """
Every command has `--help`. With `--json`, an error is one line of JSON on stderr, and a note is an object with `note`:

```json
{"error": {"code": "not_found", "message": "there is no run 7", "field": null, "exit_code": 8}}
```

`code` is the name of the [exception](exceptions.md) in small letters, such as `input_error`; or `usage` for a wrong
command line, `refused`, `timeout` or `run_failed` (`enqueue --wait`), `other_version` (`kv`), `output` and `bug`.
`field` names the option or column that is wrong. Which texts stand for a time, and `--tz`: [times](times.md).

Options that many commands have in common are explained once:
""".strip()
SHARED = ("--dsn", "--json", "--tz")
# The name of a value by the name of its type. Versions of the libraries name these types differently.
VALUES = {
    **dict.fromkeys(("text", "str", "string"), "TEXT"),
    **dict.fromkeys(("integer", "int", "integer range", "int range"), "N"),
    **dict.fromkeys(("float", "float range"), "NUMBER"),
    **dict.fromkeys(("path", "file", "filename"), "FILE"),
}


def page() -> str:
    """Return the text of the page."""
    root: Any = typer.main.get_command(make_app())
    shared = [option for option in parameters(find(root, ["status"]), "option") if option.opts[0] in SHARED]
    parts: list[list[str]] = [
        [INTRODUCTION],
        table(("option", "meaning"), [(option_usage(option), meaning(option)) for option in shared]),
        ["The database of a command, and its exit code:"],
        fenced(EPILOG.partition("\n\n\b\nExample")[0].replace("\b\n", "")),
        ["See also [exit codes and exceptions](exceptions.md) and [configuration](configuration.md)."],
    ]
    for name, command in root.commands.items():
        parts += describe_command(f"pgsched {name}", command, "##", {meaning(option) for option in shared})
    return whole("Command line", *parts)


def find(command: Any, words: list[str]) -> Any:
    """Return the subcommand that these words name."""
    for word in words:
        command = command.commands[word]
    return command


def describe_command(path: str, command: Any, mark: str, shared: set[str]) -> Iterator[list[str]]:
    """Yield the blocks of a command and of its subcommands."""
    arguments, options = parameters(command, "argument"), parameters(command, "option")
    yield [f"{mark} `{' '.join([path, *map(argument_usage, arguments)])}`"]
    yield from paragraphs(command.help or "")
    also = [option for option in options if option.opts[0] in SHARED and meaning(option) in shared]
    rows = [(code(argument_usage(argument)), prose(getattr(argument, "help", None) or "")) for argument in arguments]
    rows += [(option_usage(option), meaning(option)) for option in options if option not in also]
    if rows:
        yield table(("argument or option", "meaning"), rows)
    if also:
        yield [f"Also: {', '.join(code(option.opts[0]) for option in also)}."]
    for name, child in getattr(command, "commands", {}).items():
        yield from describe_command(f"{path} {name}", child, "###", shared)


def paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the paragraphs of a help text; a paragraph with fixed lines becomes a fenced block."""
    for paragraph in re.split(r"\n\n+", text.strip()):
        if paragraph.startswith(("\b\n", "Example")):
            yield fenced(paragraph.removeprefix("\b\n"))
        elif paragraph.strip():
            yield [prose(paragraph)]


def fenced(text: str) -> list[str]:
    """Return the text as a fenced block."""
    return ["```text", *text.strip("\n").splitlines(), "```"]


def parameters(command: Any, kind: str) -> list[Any]:
    """Return the visible arguments or options of a command."""
    return [one for one in command.params if one.param_type_name == kind and not getattr(one, "hidden", False)]


def argument_usage(argument: Any) -> str:
    """Return an argument as it stands in the usage line."""
    name = argument.metavar or argument.name.upper()
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def option_usage(option: Any) -> str:
    """Return `--name VALUE`, or both names of a switch."""
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.metavar or VALUES[option.type.name.lower()]}"
    return ", ".join(code(f"{name}{value}") for name in names)


def meaning(option: Any) -> str:
    """Return the help of an option, with its default and environment variable."""
    said = prose(option.help or "")
    if not option.is_flag and isinstance(option.default, int | float | str) and "Default" not in said:
        said += (
            f" Default: {option.default:g}." if isinstance(option.default, float) else f" Default: {option.default}."
        )
    if option.envvar:
        said += f" Environment: `{option.envvar}`."
    return said.strip()
