"""Texts that users see say which process, session, user or state they mean, without vague words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pgsched
from tests.support.paths import parsed

PACKAGE = Path(pgsched.__file__).parent
# Reports of chaos and messages between processes are read by developers only.
LEFT_OUT = ("chaos", "execute/process_pool/protocol.py")
VAGUE = re.compile(r"\b(nobody|somebody|everybody|whoever|to who|let go|held back)\b", re.IGNORECASE)
PARTS = r"(?i)\b(nobody|somebody|everybody|whoever|to\W+who|let\W+go|held\W+back)\b"  # of a text on two lines, too


def texts(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module with their lines.

    Docstrings are left out, except those of commands, which are help texts.
    """
    bare = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    helps = "cli/commands" in path.as_posix()
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and (helps or id(one) not in bare):
            yield one.lineno, one.value


def test_texts_of_programs_and_templates_use_no_vague_words() -> None:
    modules = [one for one in PACKAGE.rglob("*.py") if not one.relative_to(PACKAGE).as_posix().startswith(LEFT_OUT)]
    templates = [*PACKAGE.rglob("*.html")]
    assert len(modules) > 200 and len(templates) > 10
    found = [f"{path.name}:{line}: {text.strip()[:80]!r}" for path, tree in parsed(modules, about=PARTS)
             for line, text in texts(path, tree) if VAGUE.search(text)]  # fmt: skip
    found += [f"{path.name}: {match[0]!r}" for path in templates for match in VAGUE.finditer(path.read_text())]
    assert found == []
