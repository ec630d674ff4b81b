"""The runner of documentation pages reports a block that fails, in any language, and runs the other blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs.playing import Play
from tests.support.docs.reading import Block, Page
from tests.support.docs.shell import Failed, commands
from tests.support.docs.stages import Stage

WRONG = {
    "sh": "pgsched job add a --task t\npgsched job add b --taks t\n",
    "sh that goes on": "pgsched worker --app nowhere:app\n",
    "sh in a pipe": "pgsched job show nobody | cat\n",
    "console": "$ pgsched job preview --schedule @daily --from 2026-01-01 --count 1\nAt 00:01 every day\n",
    "sql": "SELECT 1;\nINSERT INTO pgsched.jobs (name, schedule, task) VALUES ('a', '99 * * * *', 't');\n",
    "python": "from pgsched import App\n\napp = App('test')\napp.jobs.add('a')\n",
    "json": '{"a": }\n',
    "toml": "a =\n",
    "yaml": "command: [pgsched, worker, --conccurency, '8']\n",
    "ini": "[Unit]\n[Service]\nExecStart=/opt/pgsched worker --nothing\n",
    "crontab": "61 * * * * /bin/true\n",
    "rust": "fn main() {}\n",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_block_is_reported_with_its_line(name: str, dsn: str, tmp_path: Path) -> None:
    wrong = Block("docs/made-up.md", 10, name.split(maxsplit=1)[0], WRONG[name])
    right = Block("docs/made-up.md", 20, "sql", "SELECT 1")
    play = Play(Page("docs/made-up.md", (wrong, right), ()), Stage(), dsn, tmp_path)
    play.play()
    assert play.outcomes[10] is not None and play.outcomes[20] is None
    if name == "sh":
        assert "docs/made-up.md:11: $ pgsched job add b" in str(play.outcomes[10])


def test_a_failing_handler_is_reported(dsn: str, tmp_path: Path) -> None:
    text = "from pgsched import App\napp = App('test')\n@app.task(max_attempts=1)\ndef t(): 1 / 0\nt.enqueue()\n"
    play = Play(Page("docs/made-up.md", (Block("docs/made-up.md", 10, "python", text),), ()), Stage(), dsn, tmp_path)
    play.play()
    assert "ZeroDivisionError" in str(play.outcomes[10])


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["worker", "leader", "web", "top"])
def test_a_long_running_command_is_started_and_stopped(command: str, dsn: str, tmp_path: Path) -> None:
    block = Block("docs/made-up.md", 10, "sh", f"pgsched {command}\n")
    play = Play(Page("docs/made-up.md", (block,), ()), Stage(), dsn, tmp_path)
    play.play()
    assert play.outcomes[10] is None, play.outcomes[10]


def test_commands_are_split_as_by_a_shell() -> None:
    text = "# why\npgsched job add a \\\n    --task t  # so\n\nprintf '%s\n' x\n"
    assert commands(text) == [(1, "pgsched job add a      --task t  # so"), (4, "printf '%s\n' x")]
    with pytest.raises(Failed):
        commands("echo 'x\n")
