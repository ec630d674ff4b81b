"""The error for an app that cannot be imported names the failing line of the user's own code."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from pgsched.app.base import import_app
from pgsched.errors import InputError


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("import nothing_like_it\n", 1, "No module named 'nothing_like_it'"),
        ("from pgsched import App\napp = App('a')\n@app.job(schedule='0 25 * * *')\ndef f(): ...\n", 3, "hour: 25"),
        ("from pgsched import App\napp = App('a')\n@app.job(schedule='@daily', ovrlap='skip')\ndef f(): ...\n", 3,
         "did you mean overlap?"),
        ("import sys\n\nsys.exit('no licence')\n", 3, "it ended the program: sys.exit('no licence')"),
        ("import sys\nsys.exit()\n", 2, "it ended the program: sys.exit(None)"),
        ("import json\n\njson.loads('{')\n", 3, "JSONDecodeError"),
        ("def f(:\n", 1, "SyntaxError"),
    ],
)  # fmt: skip
def test_the_failing_line_is_named(
    text: str, line: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper, module = (f"{name}_{uuid.uuid4().hex}" for name in ("helper", "shop"))
    (tmp_path / f"{helper}.py").write_text(text)
    (tmp_path / f"{module}.py").write_text(f"from {helper} import app\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=rf"importing {module} failed: .*{helper}\.py:{line}: .*{re.escape(what)}"):
        import_app(f"{module}:app")


START = "from pgsched import App, Discard\napp = App('a')\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("@app.job(schedule='0 25 * * *', name='nightly')\n@app.task\ndef f(): ...\n",
         "3: job nightly: hour: 25 is out of range 0-23 ("),
        ("@app.job(\n    schedule='@daily',\n    timezone='Europe/Berln',\n)\ndef f(): ...\n",
         "3: job SHOP.f: timezone: "),
        ("@app.job(schedule='@daily', ovrlap='skip')\n@app.task(name='report')\nasync def f(): ...\n",
         "3: job report: ovrlap: no such policy"),
        ("@app.job(schedule='@daily', name='nightly', args={'dys': 1})\n@app.task(name='report')\n"
         "def f(days: int): ...\n", "3: task report: "),
        ("@app.job(schedule='@daily')\n@app.task(queu='x', name='report')\ndef f(): ...\n", "4: task report: queu: "),
        ("class Mine:\n    @app.task(priority=12)\n    def f(): ...\n", "4: task SHOP.f: priority: 12 is out of range"),
        ("@app.task\ndef f(when: 'bytes | str'): ...\n", "3: task SHOP.f"),
        ("def f(): ...\nf = app.task(f)\nf.options(priority=12)\n", "5: priority: 12 is out of range"),
        ("app.task(f := lambda: None, priority=12)\n", "3: "),
        ("@app.task(priority=12, name='é' * 300)\ndef f(): ...\n", "3: task SHOP.f: "),
    ],
)  # fmt: skip
def test_the_job_or_task_is_named(text: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"shop_{uuid.uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(START + text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        import_app(f"{module}:app")
    start = f"app: importing {module} failed: {module}.py:{place.replace('SHOP', module)}"
    assert str(raised.value)[: len(start)] == start
