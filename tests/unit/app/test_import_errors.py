"""An app that cannot be imported: the message names the line of the user's own code."""

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
def test_the_line_is_named(text: str, line: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper, module = (f"{name}_{uuid.uuid4().hex}" for name in ("helper", "shop"))
    (tmp_path / f"{helper}.py").write_text(text)
    (tmp_path / f"{module}.py").write_text(f"from {helper} import app\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=rf"importing {module} failed: .*{helper}\.py:{line}: .*{re.escape(what)}"):
        import_app(f"{module}:app")
