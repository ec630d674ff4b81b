"""Commands note unknown names at once, with a hint, and refuse arguments that can never run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest

from pgsched.errors import InputError
from pgsched.execute.subprocess.command import KEYS, SHELL_KEYS, read_program
from tests.support.cli.said import Said

Program = Callable[..., Said]


@pytest.fixture
def worker(db: psycopg.Connection[Any]) -> None:
    """Add a live worker that offers two tasks on the queues mail and default."""
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, queues, lease)"
        " VALUES ('w', 'h', 1, '0', 1, '{task}', '{app.touch,app.bank}', '{mail,default}', '1 minute')"
    )


@pytest.mark.usefixtures("worker")
def test_a_job_of_an_unknown_task_or_queue_is_made_with_a_note(pgsched: Program) -> None:
    said = pgsched("job", "add", "a", "--task", "touch", "--schedule", "@daily", "--queue", "mial")
    assert said.code == 0
    assert "note: no live worker offers task touch; did you mean app.touch?" in said.err
    assert "note: nothing else has queue mial; did you mean mail?" in said.err
    assert pgsched("job", "add", "b", "--task", "app.touch", "--schedule", "@daily", "--queue", "mail").err == ""
    assert "did you mean app.bank?" in pgsched("job", "update", "b", "--task", "app.bnk").err
    assert pgsched("job", "update", "b", "--set", "priority=3").err == ""


def test_without_workers_there_is_nothing_to_compare_with(pgsched: Program) -> None:
    assert pgsched("job", "add", "a", "--task", "touch", "--schedule", "@daily").err == ""


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("command", "note"),
    [
        (
            "queue set mial --concurrency 1",
            "no live worker, job or run has queue mial, and it has no settings; did you mean mail?",
        ),
        ("pause --queue defalt", "did you mean default?"),
        ("pause --queue mial", "did you mean mail?"),
        ("pause --task touch", "no live worker offers and no job has task touch; did you mean app.touch?"),
        ("pause --task nosuch.task", "no live worker offers and no job has task nosuch.task"),
    ],
)
def test_settings_for_an_unknown_queue_or_task_are_made_with_a_note(command: str, note: str, pgsched: Program) -> None:
    said = pgsched(*command.split())
    assert said.code == 0
    assert f"note: {note}" in said.err or (note.startswith("did") and note in said.err)
    again = pgsched(*command.split())
    assert "queue set" not in command or again.err == "", "its settings know it now"


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "command", ["queue set mail --concurrency 1", "pause --all", "pause --task app.bank", "pause --queue q"]
)
def test_settings_for_a_known_name_are_made_without_a_note(
    command: str, pgsched: Program, db: psycopg.Connection[Any]
) -> None:
    db.execute("INSERT INTO pgsched.runs (task, queue) VALUES ('t', 'q')")
    said = pgsched(*command.split())
    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize(
    "command",
    ["job show", "job run", "job pause", "job delete", "explain", "job preview", "run list --job"],
)
def test_an_unknown_job_name_is_refused_with_a_hint(command: str, pgsched: Program) -> None:
    for name in ("nightly-report", "weekly"):
        assert pgsched("job", "add", name, "--task", "t", "--schedule", "@daily").code == 0
    said = pgsched(*command.split(), "nigthly-report")
    assert (said.code, said.out) == (8, "")
    assert said.err == 'error: there is no job named "nigthly-report"; did you mean nightly-report?\n'
    assert "did you mean nightly-report?" in pgsched(*command.split(), "nightly").err
    assert pgsched(*command.split(), "zzz").err == (
        'error: there is no job named "zzz": `pgsched job list` shows those that exist\n'
    )


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--queue mial", "no runs; queue mial: did you mean mail?"),
        ("--task bank", "no runs; task bank: did you mean app.bank?"),
        ("--task shop.sent", "no runs; task shop.sent: did you mean shop.send?"),
        ("--tag custmer:7", "no runs; tag custmer:7: did you mean customer:7?"),
        (
            "--tag custmer:7 --queue mial",
            "no runs; queue mial: did you mean mail?; tag custmer:7: did you mean customer:7?",
        ),
        ("--state dead", "no runs"),
        ("--queue mail", "no runs"),
    ],
)
def test_a_filter_that_finds_no_run_hints_at_similar_names(
    options: str, said: str, pgsched: Program, db: psycopg.Connection[Any]
) -> None:
    db.execute("INSERT INTO pgsched.runs (task, tags) VALUES ('shop.send', '{customer:7}')")
    found = pgsched("run", "list", *options.split())
    assert (found.code, found.out) == (0, said + "\n")
    assert pgsched("run", "list", "--json", *options.split()).json == []


@pytest.mark.usefixtures("worker")
def test_an_unroutable_run_hints_at_a_similar_task_that_is_offered(
    pgsched: Program, db: psycopg.Connection[Any]
) -> None:
    assert pgsched("job", "add", "a", "--task", "touch", "--schedule", "@daily").code == 0
    db.execute("INSERT INTO pgsched.runs (task, job_id, scheduled_at) SELECT task, id, '2026-01-01Z' FROM pgsched.jobs")
    hint = "did you mean app.touch?"
    assert f"no live worker offers task touch on queue default (1 queued); {hint}" in pgsched("status").out
    assert f"unroutable: no live worker offers it; {hint}" in pgsched("run", "list").out
    assert hint in pgsched("run", "show", "1").out
    assert f"the one live worker does not offer task touch there; {hint}" in pgsched("explain", "a", "2026-01-01").out


@pytest.mark.parametrize(
    ("kind", "args", "why"),
    [
        ("command", '{"arg": ["-l"]}', "args.arg: no such key; known are argv, env, cwd, stdin"),
        ("command", '{"argv": "-l"}', "args.argv"),
        ("shell", '{"x": 1}', "args.x: no such key; known are env, cwd, stdin"),
        ("shell", '{"env": {"A=B": "c"}}', "is not the name of a variable"),
    ],
)
def test_arguments_that_can_never_run_are_refused(kind: str, args: str, why: str, pgsched: Program) -> None:
    base = ("job", "add", "a", "--kind", kind, "--task", "ls", "--schedule", "@daily")
    refused = pgsched(*base, "--args", args)
    assert (refused.code, why in refused.err) == (2, True), refused.err
    assert pgsched(*base).code == 0
    for command in (("job", "update", "a", "--args", args), ("job", "run", "a", "--args", args)):
        refused = pgsched(*command)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    assert pgsched("run", "list", "--json").json == []


def test_a_last_page_that_is_full_announces_no_next_page(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    for name in ("a", "b"):
        assert pgsched("job", "add", name, "--task", "t", "--schedule", "@daily").code == 0
        db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    for noun in ("job", "run"):
        assert pgsched(noun, "list", "--limit", "2").err == ""
        assert pgsched(noun, "list", "--limit", "1").err.startswith("the next page: --")
        assert len(pgsched(noun, "list", "--limit", "1", "--json").json) == 1


UNRUNNABLE = [
    ("command", '{"arg": ["-l"]}', "args.arg: no such key; known are argv, env, cwd, stdin"),
    ("command", '["-l", 5]', "args.argv[1]: expected a string, got number"),
    ("command", '{"argv": "-l"}', "args.argv: expected an array of strings, got string"),
    ("command", '{"argv": ["a", null]}', "args.argv[1]: expected a string, got null"),
    ("shell", '{"argv": ["a"]}', "args.argv: no such key; known are env, cwd, stdin"),
    ("shell", '{"env": {"A": 1}}', "args.env: A: expected a string, got number"),
    ("shell", '{"env": ["A"]}', "args.env: expected an object of strings, got array"),
    ("shell", '{"env": {"A=B": "c"}}', 'args.env: "A=B" is not the name of a variable'),
    ("shell", '{"env": {"": "c"}}', 'args.env: "" is not the name of a variable'),
    ("shell", '{"env": {"PGSCHED_TOKEN": "c"}}', "args.env: PGSCHED_TOKEN is set by pgsched itself"),
    ("shell", '{"cwd": ""}', "args.cwd: must not be empty"),
    ("shell", '{"stdin": {}}', "args.stdin: expected a string, got object"),
    ("shell", '["x"]', "args: a shell job takes a JSON object"),
    ("sql", '["x"]', "args: a sql job takes a JSON object"),
]


@pytest.mark.parametrize(("kind", "args", "why"), UNRUNNABLE)
def test_an_insert_of_arguments_that_can_never_run_is_refused(
    kind: str, args: str, why: str, db: psycopg.Connection[Any]
) -> None:
    """The database names the field in its error, and refuses what the executor would refuse."""
    db.execute("INSERT INTO pgsched.jobs (name, kind, task, schedule) VALUES ('j', %s, 'ls', '@daily')", [kind])
    for statement in (
        "INSERT INTO pgsched.jobs (name, kind, task, args) VALUES ('k', %(kind)s, 'ls', %(args)s)",
        "INSERT INTO pgsched.runs (kind, task, args) VALUES (%(kind)s, 'ls', %(args)s)",
        "SELECT pgsched.enqueue('ls', %(args)s, kind => %(kind)s)",
        "UPDATE pgsched.jobs SET args = %(args)s",
        "SELECT pgsched.trigger('j', %(args)s)",
    ):
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            db.execute(statement.encode(), {"kind": kind, "args": args})
        assert refused.value.diag.message_primary == why, statement
    with pytest.raises(InputError) if kind != "sql" else nullcontext():
        executed(kind, json.loads(args))


def executed(kind: str, args: Any) -> None:
    """Read the arguments as the executor of this kind does."""
    if kind == "command":
        read_program(["ls"], {"argv": args} if isinstance(args, list) else args, tuple(KEYS))
    elif kind == "shell":
        read_program(["ls"], {} if args == [] else args, SHELL_KEYS)


RUNNABLE = [
    ("command", '["-l"]'), ("command", "[]"), ("command", "{}"), ("shell", "[]"), ("shell", "{}"),
    ("command", '{"argv": [], "env": {"A": ""}, "cwd": "/", "stdin": "x"}'), ("shell", '{"cwd": null, "stdin": null}'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "args"), RUNNABLE)
def test_arguments_that_a_program_can_take_are_accepted(kind: str, args: str, db: psycopg.Connection[Any]) -> None:
    executed(kind, json.loads(args))
    db.execute("INSERT INTO pgsched.runs (kind, task, args) VALUES (%s, 'ls', %s)", [kind, args])


def test_a_job_with_arguments_that_an_older_release_took_can_be_paused(db: psycopg.Connection[Any]) -> None:
    db.execute("SET session_replication_role = replica")
    db.execute(
        "INSERT INTO pgsched.jobs (name, kind, task, args, schedule, decided_until, anchor_at)"
        " VALUES ('j', 'shell', 'ls', '{\"x\": 1}', '@daily', now(), now())"
    )
    db.execute("SET session_replication_role = origin")
    db.execute("UPDATE pgsched.jobs SET paused = true")
    with pytest.raises(psycopg.errors.CheckViolation, match=r"args\.x: no such key"):
        db.execute("UPDATE pgsched.jobs SET kind = 'command'")


def test_a_command_line_as_a_program_is_noted(pgsched: Program) -> None:
    base = ("--kind", "command", "--schedule", "@daily", "--task")
    said = pgsched("job", "add", "a", *base, "certbot renew -q")
    assert (said.code, "a command is one program" in said.err) == (0, True)
    assert pgsched("job", "add", "b", *base, "certbot", "--args", '["renew", "-q"]').err == ""


@pytest.mark.long
def test_arguments_that_the_task_of_a_job_does_not_take_are_noted(
    pgsched: Program, db: psycopg.Connection[Any]
) -> None:
    """The job may be made before the release that takes them, so it is made."""
    db.execute(
        "INSERT INTO pgsched.tasks (app, task, release, options, schema, owner)"
        " VALUES ('shop', 'add', '1', '{}', %s, 'me')",
        [json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False})],
    )
    base = ("--task", "add", "--schedule", "@daily")
    note = "note: args: b: there is no such argument: the newest release of task add does not take them"
    said = pgsched("job", "add", "misfit", *base, "--args", '{"b": 1}')
    assert (said.code, note in said.err) == (0, True)
    assert note in pgsched("job", "add", "dry", *base, "--args", '{"b": 1}', "--dry-run").err
    assert pgsched("job", "add", "fit", *base, "--args", '{"a": 1}').err == ""
    assert pgsched("job", "add", "by-position", *base, "--args", "[1]").err == ""
    assert note in pgsched("job", "update", "fit", "--args", '{"b": 1}').err
    assert note not in pgsched("job", "update", "fit", "--set", "queue=default").err
    assert pgsched("job", "add", "late", "--task", "other", "--schedule", "@daily", "--args", '{"b": 1}').err == ""
    assert note in pgsched("job", "update", "late", "--task", "add").err


def test_deleting_a_declared_job_says_that_it_comes_back(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    assert pgsched("job", "add", "a", "--task", "t", "--schedule", "@daily").code == 0
    db.execute("SET session_replication_role = replica")
    db.execute("UPDATE pgsched.jobs SET declared_by = 'shop'")
    said = pgsched("job", "delete", "a")
    assert (said.code, "the code of shop declares this job" in said.err) == (0, True)


def test_a_list_on_80_columns_shows_the_reason(
    pgsched: Program, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "app.heartbeat.of.the.whole.shop"
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES (%s, %s, '@daily')", [name, name])
    reason = "overlap: run 436 was not finished when this slot came due, and the job's policy is to skip it then"
    db.execute("SET session_replication_role = replica")
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, reason, finished_at, phase)"
        " SELECT id, now(), task, 'skipped', %s, now(), 3 FROM pgsched.jobs",
        [reason],
    )
    db.execute(
        "INSERT INTO pgsched.runs (task, state, reason, phase, token, worker_id, started_at, lease_until)"
        " VALUES ('t', 'running', 'handed back: stale', 2, gen_random_uuid(), 1, now(), now())"
    )
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", pgsched("run", "list").out)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert all(word in shown for word in reason.split()), shown
    assert "skipped" in shown and "stale" not in shown, shown
    assert shown.count("app.heart") == 1, "the job and its task of the same name are one column"
