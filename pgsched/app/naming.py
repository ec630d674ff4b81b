"""The rule: what code is called is found in the code, the same in the program that enqueues and in the worker."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def where(function: Any) -> str:
    """The file and line of a function, for messages."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)


def task_name(function: Callable[..., Any]) -> str:
    """`module.qualname`, with the importable name of the module that runs as __main__."""
    module = getattr(function, "__module__", None) or "__main__"
    qualname = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{main_module() if module == '__main__' else module}.{qualname}"


def main_module() -> str:
    """The name by which the program's first module would be imported; __main__ where it has none (a prompt)."""
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
