"""Generate docs/reference/configuration.md: environment variables and defaults, from `pgsched.config`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pgsched import config
from tools.reference.command_line import find, parameters
from tools.reference.markdown import code, prose, table
from tools.reference.markdown import page as whole

INTRODUCTION = """
A setting comes from its option, else from the environment, else it is the default. pgsched reads no configuration file.
The options of each command are in the [command line reference](cli.md).
""".strip()
DATABASE = """
The first of these that is set names the database: `--dsn`, `PGSCHED_DSN`, `DATABASE_URL`, the `dsn` of the `App` that
a worker serves, the variables of libpq below, the embedded PostgreSQL. One that is set but empty is an error (exit
code 2).
""".strip()
LIBPQ = """
The variables of libpq count only if one of {leading} is set. libpq itself reads others, such as `PGPASSWORD` and
`PGSSLMODE`.
""".strip()


def page() -> str:
    """Return the text of the page."""
    import typer.main

    from pgsched.cli import make_app

    worker = find(typer.main.get_command(make_app()), ["worker"])
    options = {option.name: option.opts[0] for option in parameters(worker, "option")}
    leading = ", ".join(map(code, config.REQUIRED_ANY_OF_LIBPQ))
    return whole(
        "Configuration",
        [INTRODUCTION],
        ["## Environment variables"],
        table(("variable", "meaning"), [(code(name), prose(said)) for name, said in config.ENVIRONMENT.items()]),
        ["## Which database"],
        [DATABASE],
        [LIBPQ.format(leading=leading)],
        table(("variable", "part of the DSN"), [(code(name), code(part)) for name, part in config.LIBPQ.items()]),
        ["## Defaults of a worker"],
        ["Durations are in seconds. Settings without an option are fixed."],
        table(("setting", "option", "default"), defaults(config.WorkerSettings, options)),
        ["## Defaults of the leader"],
        table(("setting", "option", "default"), defaults(config.LeaderSettings, options)),
        ["## Fixed bounds"],
        table(
            ("bound", "value"),
            [
                ("arguments, and the result, of a run: bytes of JSON", f"{config.MAX_PAYLOAD_BYTES:,}"),
                ("deaths of workers in a row after which a run is dead", str(config.CRASH_LIMIT)),
                ("seconds that a run may wait before `status` calls it a problem", f"{config.BACKLOG_S:g}"),
                ("seconds that a declared job stays after its last declarer was seen", f"{config.WITHDRAW_AFTER_S:g}"),
            ],
        ),
    )


def defaults(settings: type[Any], options: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return each field with its option and its default."""
    made = settings()
    found = []
    for field in fields(settings):
        name = field.name
        option = next((options[key] for key in aliases(name) if key in options), "")
        found.append((code(name), code(option) if option else "", format_default(getattr(made, name))))
    return found


def aliases(name: str) -> list[str]:
    """Return possible names of a setting's option: the setting, the setting without its unit, or in the singular."""
    bare = name.removesuffix("_s").removesuffix("_mb")
    return [name, bare, bare.removesuffix("s")]


def format_default(value: Any) -> str:
    """Format a default for a reader."""
    if value is None or (hasattr(value, "__len__") and not value):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, frozenset):
        return ", ".join(sorted(code(str(one)) for one in value))
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"
