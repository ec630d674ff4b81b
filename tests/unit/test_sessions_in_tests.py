"""What tests say about sessions of PostgreSQL: other tests use the same server at the same time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.paths import ROOT, parsed

UNWAITED = re.compile(r"pg_terminate_backend\((?!pg_backend_pid\(\)|[^)]*, ?\d)")
ABOUT_A_TEXT = {"tests/e2e/cli/test_doctor.py"}
THEIRS = re.compile(r"FROM pg_(stat_activity|locks)\b")
OF_ONE_DATABASE = re.compile(r"\b(datname|database)\b|\bpid (=|IN)|\{MINE\}")
AT_ANY_MOMENT = {"tests/support/recipes/race/race.py"}  # a race goes on while its connections are cut


def test_each_test_that_ends_a_session_waits_for_its_end() -> None:
    """With the server's own timeout in milliseconds: https://www.postgresql.org/docs/14/functions-admin.html."""
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "test_sessions_in_tests.py" and UNWAITED.search(path.read_text())
    }
    assert found == ABOUT_A_TEXT | AT_ANY_MOMENT


def statements() -> Iterator[tuple[str, str]]:
    """Yield the texts that tests read sessions or locks with, each with its file; what is put into them as {NAME}."""
    for path, tree in parsed((ROOT / "tests").rglob("*.py"), about=r"pg_(stat_activity|locks)\b"):
        nodes = [*ast.walk(tree)]
        parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            text = ast.unparse(node) if isinstance(node, ast.JoinedStr) else getattr(node, "value", None)
            if isinstance(text, str) and THEIRS.search(text) and id(node) not in parts:
                yield str(path.relative_to(ROOT)), text


def test_no_test_takes_the_sessions_of_another_test_for_its_own() -> None:
    found = [(path, text) for path, text in statements() if not OF_ONE_DATABASE.search(text)]
    assert found == [], "use tests/support/sessions.py"


def test_only_one_module_shuts_databases() -> None:
    """Who ends the sessions of a database without waiting for those that are starting leaves some of them."""
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "test_sessions_in_tests.py" and "ALLOW_CONNECTIONS" in path.read_text()
    }
    assert found == {"tests/support/sessions.py", "tests/conftest.py"}
