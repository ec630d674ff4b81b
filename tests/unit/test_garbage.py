"""What runs when an object is thrown away runs in any thread, also at the end of the interpreter.

There, daemon threads stand still for ever. Whoever waits for a lock that one of them has keeps the program from ending.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.paths import of_the_package, parsed, relative

# Calls that take no lock: they may run at any time.
LOCKLESS = {"os.close", "lambda _: wake.put(None)"}


def cleanups() -> Iterator[tuple[str, str]]:
    """Yield what is called when an object is thrown away: where it stands, and its source."""
    for path, tree in parsed(of_the_package(), about=r"\b(finalize|ref)\(|__del__"):
        functions = {node.name: ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        if "__del__" in functions:
            yield f"{relative(path)}: __del__", functions["__del__"]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("weakref.") in {"finalize", "ref"}:
                for callback in node.args[1:2]:
                    source = ast.unparse(callback)
                    yield f"{relative(path)}: {source}", functions.get(source, source)


def test_what_runs_when_an_object_is_thrown_away_waits_for_no_lock_at_the_end() -> None:
    found = dict(cleanups())
    assert len(found) >= 4
    assert [
        where for where, source in found.items() if "is_finalizing()" not in source and source not in LOCKLESS
    ] == []
