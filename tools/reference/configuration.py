"""Generate docs/reference/configuration.md: environment variables and defaults, from `pgsched.config`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pgsched import config
from pgsched.db.connection.url_options import IGNORED_BY
from tools.reference.command_line import find, parameters
from tools.reference.markdown import code, prose, table
from tools.reference.markdown import page as whole

INTRODUCTION = """
A setting of a command comes from its option, else from the environment, else from the [settings file](#settings-file),
else it is the default. The options of each command are in the [command line reference](cli.md). A worker
[inside a program](../how-to/frameworks.md) has the arguments of `app.worker()`, and reads no file.
""".strip()
FILE = """
`pgsched.toml` gives commands the options that neither the command line nor the environment gives. The program `pgsched`
reads it in the current folder, or above it up to the root of the repository (the folder with `.git`); `PGSCHED_CONFIG`
names another file. There is one name and one place: `pyproject.toml` is not read, because it is often public, belongs
to a package, and is not where a worker runs.

```toml
dsn = "postgresql://worker@db.example.org/shop"  # where neither PGSCHED_DSN nor DATABASE_URL is set
app = ["shop.tasks:app"]                         # for workers and checks, not for `import celery`

[worker]
concurrency = 16
queue = ["mail", "default"]
leader = true
max-memory = 800

[web]
port = 8080
```

Keys are the options of the command without `--`; `dsn` and `app` stand at the top, others in the table of their
command (`[run.list]` for `pgsched run list`). An unknown key is an error with exit code 2. A file with a password that
every user of the machine can read is warned of: `chmod 600 pgsched.toml`. A file that belongs to another user is
refused, because it says what code runs. In the current folder, a file of the folder's own owner is right.
""".strip()
COMPLETION = """
`pgsched --install-completion` sets up completion of commands and options for bash, zsh or fish; `--show-completion`
prints it. Names of jobs, queues, tasks and live workers come from the database that the command would use. It has one
second to answer, and an embedded server is not started for it. A name with a character that a shell could read as a
command is left out.
""".strip()
DATABASE = """
For a command, the first of these that is set names the database: `--dsn`, `PGSCHED_DSN`, `dsn` in the settings file,
the `dsn` of the `App` that a worker serves, `DATABASE_URL`, the variables of libpq below, the embedded PostgreSQL.
Where `DATABASE_URL` is set, the settings file's `dsn` does not count. One that is set but empty is an error (exit
code 2). `pgsched check` says which one was used.

For a program that enqueues, it is `App(dsn=...)`, `PGSCHED_DSN`, `DATABASE_URL`, the variables of libpq. The embedded
PostgreSQL is used only if `App(embedded=True)` or `PGSCHED_EMBEDDED=1` allows it; otherwise the first enqueue raises
`DatabaseUnreachable: no DSN`.

URLs may be as SQLAlchemy, Django and Heroku write them:

- The scheme is `postgresql`, `postgres`, `psql`, `pgsql`, `postgis` or `timescale`, with or without a driver such as
  `+psycopg` or `+asyncpg`. The URL of another database is refused by its name.
- `ssl=require` and `ssl=true` become `sslmode=require`, asyncpg's `timeout` becomes `connect_timeout`, and a `schema`
  or `currentSchema` becomes the search_path of handlers' connections.
- `host=a:5432&host=b:5433` names two servers.
- The settings of other libraries in the table are ignored. Any other option must be one of libpq's.
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
        ["## Settings file"],
        [FILE],
        ["## Which database"],
        [DATABASE],
        table(
            ("library", "ignored options"), [(name, ", ".join(map(code, some))) for name, some in IGNORED_BY.items()]
        ),
        [LIBPQ.format(leading=leading)],
        table(("variable", "part of the DSN"), [(code(name), code(part)) for name, part in config.LIBPQ.items()]),
        ["## Defaults of a worker"],
        ["Durations are in seconds. Settings without an option are fixed."],
        table(("setting", "option", "default"), defaults(config.WorkerSettings, options)),
        ["## Defaults of the leader"],
        table(("setting", "option", "default"), defaults(config.LeaderSettings, options)),
        ["## Completion in a shell"],
        [COMPLETION],
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
