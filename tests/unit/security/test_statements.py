"""Statements are files and constants: no input becomes part of a statement, and no payload becomes code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT, of_the_package, parsed, relative

# functions that send a statement, or make an unquoted part of one
SENDERS = {"execute", "executemany", "copy", "stream", "SQL", "mogrify"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
# what the text of each offence has
SUSPICIOUS = (
    rf"\b(?:{'|'.join(sorted(SENDERS))})\(|(?<!\.)\b(?:{'|'.join(sorted(FORBIDDEN_CALLS))})\("
    rf"|\b(?:{'|'.join(sorted(FORBIDDEN_MODULES))})\b"
)
# use the events of yaml.parse, which makes no object; yaml.load is not called
EVENTS_ONLY = {"pgsched/core/jobs_file/texts/yaml_reader.py", "pgsched/importers/kubernetes/documents.py"}
# built only from names and numbers of pgsched, never from input
CONSTANT = {
    "pgsched/db/sources/sqlite.py:statement",  # of the name of a table that exists, quoted
    "pgsched/db/callers/calls.py:KEEP",
    "pgsched/db/callers/calls.py:SEAL",
    "pgsched/db/callers/calls.py:UNSEAL",
    "pgsched/db/queries/runs/handler_transaction.py:SEAL",
    "pgsched/db/queries/runs/handler_transaction.py:UNSEAL",
}


def built(node: ast.expr, made: dict[str, ast.expr]) -> bool:
    """Check whether this text is built from other texts."""
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("format", "join") and isinstance(node.func.value, ast.Constant):
            return True
        if node.func.attr == "encode":
            return built(node.func.value, made)
    if isinstance(node, ast.Name) and node.id in made:
        return built(made[node.id], {name: value for name, value in made.items() if name != node.id})
    return False


def assigned(nodes: list[ast.AST]) -> dict[str, ast.expr]:
    """Return the assigned names with their values. Of several values, one that is built from texts is returned."""
    found: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name not in found or built(node.value, {}):
                found[name] = node.value
    return found


def offences(tree: ast.Module, where: str) -> Iterator[str]:
    nodes = [*ast.walk(tree)]
    made = assigned(nodes)
    for node in nodes:
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0] if node.args else None
            allowed = isinstance(first, ast.Name) and f"{where}:{first.id}" in CONSTANT
            if name in SENDERS and first is not None and built(first, made) and not allowed:
                yield f"{where}:{node.lineno}: a statement built from strings"
            if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                yield f"{where}:{node.lineno}: {node.func.id}"
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        bad = [n for n in names if n.partition(".")[0] in FORBIDDEN_MODULES and where not in EVENTS_ONLY]
        yield from (f"{where}:{node.lineno}: {n}" for n in bad)  # type: ignore[attr-defined]


def test_no_statement_is_built_from_strings_and_no_payload_is_code() -> None:
    suspicious = parsed(of_the_package(), about=SUSPICIOUS)
    assert [offence for path, tree in suspicious for offence in offences(tree, relative(path))] == []


@pytest.mark.parametrize("name", sorted(EVENTS_ONLY))
def test_yaml_is_read_as_events_that_make_no_object(name: str) -> None:
    used = set(re.findall(r"\byaml\.(\w*load\w*|YAMLObject|constructor\w*)", (ROOT / name).read_text()))
    assert used == set()


@pytest.mark.parametrize(
    "text",
    [
        'conn.execute(f"SELECT {x}")',
        'conn.execute("SELECT %s" % x)',
        'conn.execute("SELECT " + x)',
        'conn.execute("SELECT {}".format(x))',
        'conn.execute(" ".join(x))',
        'conn.execute(f"SELECT {x}".encode())',
        'text = f"SELECT {x}"\nconn.execute(text)',
        'composing.SQL(f"SELECT {x}")',
        "eval(x)",
        "import pickle",
        "from yaml import load",
    ],
)
def test_each_way_to_build_a_statement_is_found(text: str) -> None:
    assert re.search(SUSPICIOUS, text)
    assert len(list(offences(ast.parse(text), "x.py"))) == 1


def test_constant_statements_are_allowed() -> None:
    text = 'conn.execute("SELECT %s", [x])\nconn.execute(sql("claim"), values)\nTEXT = "SELECT 1"\nconn.execute(TEXT)'
    assert list(offences(ast.parse(text), "x.py")) == []
