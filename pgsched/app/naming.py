"""Names of tasks, taken from the code.

Invariant: a task has the same name in the program that enqueues it and in the worker.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def source_location(function: Any) -> str:
    """Return the file and line of a function, for messages."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)


def task_name(function: Callable[..., Any]) -> str:
    """Return `module.qualname`; the module that runs as __main__ has its importable name."""
    module = getattr(function, "__module__", None) or "__main__"
    qualname = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{main_module() if module == '__main__' else module}.{qualname}"


def main_module() -> str:
    """Return the importable name of the program's main module; __main__ if it has none, as at a prompt."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return str(spec.name)
    if not (file := getattr(main, "__file__", None)):
        return "__main__"
    path = Path(file).resolve()
    parts = [path.stem]
    while (path.parent / "__init__.py").exists() and path.parent != path.parent.parent:
        path = path.parent
        parts.insert(0, path.name)
    return ".".join(parts)
