"""Control characters in stored text are escaped by every command and every metric that shows the text."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgsched.cli import run
from pgsched.errors import BUG
from pgsched.telemetry import exposition

NAME = "b\x9b31md\u202ee\u200bf\u2066g\ufeffh\u200di\U000e0041"  # characters that a name may have
EVIL = f"a\x1b[2J\x07{NAME}"
FORBIDDEN = ("\x1b[2J", "\x07", *(char for char in NAME if not char.isalnum()))


@pytest.fixture
def hostile(dsn: str, db: psycopg.Connection[Any]) -> str:
    """Write hostile text to every column that takes it; return the DSN."""
    for statement, values in (
        ("INSERT INTO pgsched.jobs (name, schedule, task, description) VALUES ('nightly', '* * * * *', %s, %s)",
         [EVIL, EVIL]),
        ("UPDATE pgsched.jobs SET error = %s, error_at = now(), paused_reason = %s", [EVIL, EVIL]),
        ("INSERT INTO pgsched.runs (kind, task, args, tags) VALUES ('shell', %s, %s, %s)",
         [EVIL, Jsonb({"env": {EVIL: EVIL}}), [EVIL]]),
        ("UPDATE pgsched.runs SET state = 'dead', finished_at = now(), attempt = 1, error = %s, reason = %s,"
         " progress = %s, result = %s", [EVIL, EVIL, Jsonb({"note": EVIL}), Jsonb({EVIL: EVIL})]),
        ("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, worker, error, traceback, log_tail)"
         " VALUES (1, gen_random_uuid(), 1, 'failed', %s, %s, %s, %s)", [EVIL] * 4),
        ("INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) VALUES (1, 1, 1, 'stdout', %s)", [EVIL]),
        ("INSERT INTO pgsched.runs (kind, task) VALUES ('shell', %s)", [EVIL]),
        ("INSERT INTO pgsched.pauses (what, name, reason) VALUES ('queue', 'q', %s)", [EVIL]),
        ("INSERT INTO pgsched.workers (name, hostname, pid, version, app, concurrency, kinds, tasks, lease,"
         " blocked_by, blocked_at, tz_version)"
         " VALUES (%s, %s, 1, %s, %s, 1, '{shell}', '{}', '1 hour', %s, now(), %s)", [EVIL] * 6),
        ("INSERT INTO pgsched.jobs (name, task, queue, concurrency_key, tags, schedule)"
         " VALUES (%s, %s, %s, %s, %s, '@every 1s')", [NAME, NAME, NAME, NAME, [NAME]]),
        ("INSERT INTO pgsched.runs (task, queue, unique_key, concurrency_key, tags) VALUES (%s, %s, %s, %s, %s)",
         [NAME, NAME, NAME, NAME, [NAME]]),
        ("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES (%s, 0)", [NAME]),
        ("INSERT INTO pgsched.limits (name, concurrency) VALUES (%s, 0)", [NAME]),
        ("INSERT INTO pgsched.pauses (what, name, reason, paused_by) VALUES ('task', %s, %s, %s)", [NAME, EVIL, NAME]),
        ("INSERT INTO pgsched.tasks (task, app, release, owner) VALUES (%s, %s, %s, current_user)", [NAME, EVIL, EVIL]),
        ("INSERT INTO pgsched.alerts (job_id, job, kind, details) VALUES (1, %s, 'failures', %s)", [NAME, EVIL]),
        ("INSERT INTO pgsched.audit (who, acting_as, for_user, application, action, what, name)"
         " VALUES (%s, %s, %s, %s, 'change', 'job', %s)", [NAME, NAME, EVIL, EVIL, EVIL]),
        ("SELECT pgsched.backfill(%s, now() - interval '1 minute', now())", [NAME]),
        ("INSERT INTO pgsched.leader (term, holder, hostname, pid) VALUES (1, %s, %s, 1)", [EVIL, EVIL]),
    ):  # fmt: skip
        with contextlib.suppress(psycopg.errors.CheckViolation), db.transaction():  # a column may refuse the text
            db.execute(statement.encode(), values)
    return dsn


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command",
    ["status", "doctor", "run list", "run show 1", "run logs 1", "run tree 1", "job list", "job show nightly", "audit",
     "queue list", "run retry 1", "job pause nightly --reason x", "retention show", "limit list", "run cancel 2",
     "job show N", "job update N --timezone UTC", "job pause N", "job resume N", "job run N", "explain N",
     "queue set N --concurrency 1", "pause --queue N", "resume --queue N", "limit set N --concurrency 1",
     "limit remove N", "resume --task N", "backfill list", "backfill start N --from 1m --to 0s --dry-run", "backfill N",
     "alerts",
     "job delete N", "run list --queue N", "job preview --schedule N", "job show xN", "check", "task list",
     "task show N", "worker list", "worker drain N", "enqueue N", "run update 1 --queue N", "report"],
)  # fmt: skip
def test_no_command_shows_a_control_character(
    hostile: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PGSCHED_DSN", hostile)
    args = [word.replace("N", NAME) for word in command.split()]
    for more in ([], ["--json"]):
        code = run([*args, *more])
        said = "".join(capsys.readouterr())
        assert code != BUG, said
        assert [repr(text) for text in FORBIDDEN if text in said] == []
    assert said.strip()


def test_no_metric_has_a_label_with_a_control_character() -> None:
    page, _ = exposition.page({"": [("pgsched_queue_runs", (NAME, "queued"), 3)]}, "")
    said = page.decode()
    assert r"\\u202e" in said
    assert [repr(text) for text in FORBIDDEN if text in said] == []
