"""The few lines of the docs that are not run, with the reasons."""

from __future__ import annotations

CHAOS = "takes minutes: tests/e2e/chaos/test_faults.py runs the faults, test_chaos_command.py the command"
# (page, command) -> why the command is not run
NOT_RUN: dict[tuple[str, str], str] = {
    (
        "docs/how-to/moving-from-celery.md",
        "pgsched import celery --app shop.celery:app > jobs.yaml",
    ): "needs Celery: tests/unit/services/importing/test_reading_celery_apps.py, which .ci/long runs",
    ("docs/concepts/chaos.md", "pgsched chaos"): CHAOS,
    ("docs/concepts/chaos.md", "pgsched chaos --tier full --save history.jsonl"): CHAOS,
    ("docs/concepts/chaos.md", "pgsched chaos --faults worker-killed,partition"): CHAOS,
    ("docs/concepts/chaos.md", "pgsched chaos --seconds 3600 --seed 7"): CHAOS,
}
# The beginnings of commands that are read but not run, and why. The extras that pip would install must exist.
NOT_RUN_COMMANDS = {
    "python3 -m venv": "this environment stands for it",
    "pip install": "needs a package index; .ci/run installs from the README's own line",
    ".venv/bin/pip install": "needs a package index; .ci/run installs from the README's own line",
    ".venv/bin/pytest": "is what runs this",
    "pgsched worker --allow command,shell --queue": "would run the jobs of the page on this machine",
    "pgsched shadow report --log days.log": "compares days that have passed: test_shadow_command.py does so",
    "journalctl -": "needs a journal with cron and systemd in it; the stage has the files",
    "crontab -": "needs cron",
    "mv /etc/cron.d/": "needs cron",
    "systemctl ": "needs systemd",
    "kubectl ": "needs a cluster; the stage has the listing",
}
