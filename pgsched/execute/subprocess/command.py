"""The executor of kind `command`: runs a program with arguments, without a shell.

Invariant: arguments reach the program unchanged; no shell reads them.

`task` is the program. `args` is an array of strings, or an object with any of `argv`, `env`, `cwd` and `stdin`. The
shell executor also uses `read_program`. A wrong value fails for good, with the path of the value.
"""

from __future__ import annotations

from typing import Any

from pgsched.app.codecs.annotations import describe_mismatch
from pgsched.core.model import Claim, Outcome, Unreadable
from pgsched.errors import InputError
from pgsched.execute.outcomes import refusal_outcome
from pgsched.execute.slot_tokens import fill_slot, is_unknown_zone
from pgsched.execute.subprocess.child import Program
from pgsched.execute.subprocess.program import Processes

SHELL_KEYS = ("env", "cwd", "stdin")
KEYS: dict[str, Any] = {"argv": list[str], "env": dict[str, str], "cwd": str | None, "stdin": str | None}


class CommandExecutor:
    """The executor of programs."""

    abandoned = 0

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def execute(self, claim: Claim) -> Outcome:
        """Run the program of one claim to its end."""
        try:
            claim = fill_slot(claim)
            args = {"argv": claim.args} if isinstance(claim.args, list) else claim.args
            program = read_program([claim.task], args, tuple(KEYS))
        except InputError as error:
            return refusal_outcome(str(error), retry=is_unknown_zone(error))
        return await self._processes.run(program, claim)

    async def close(self) -> None:
        """End the guard of this worker's processes."""
        await self._processes.close()


def read_program(argv: list[str], args: Any, keys: tuple[str, ...]) -> Program:
    """Return the program: `argv`, continued by `argv` of the `args` object, with its other keys.

    Raises InputError for a wrong key or value.
    """
    if isinstance(args, Unreadable):
        raise InputError(f"args: {args.reason}", "args")
    if not isinstance(args, dict):
        raise InputError(f"args: expected an object with {', '.join(keys)}, got {type(args).__name__}", "args")
    for key, value in args.items():
        if key not in keys:
            raise InputError(f"args.{key}: no such key; known are {', '.join(keys)}", "args")
        if problem := describe_mismatch(value, KEYS[key], f"args.{key}") or find_problem(key, value):
            raise InputError(problem, "args")
    return Program(
        argv=[*argv, *args.get("argv", [])],
        env=args.get("env", {}),
        cwd=args.get("cwd"),
        stdin=args.get("stdin") or "",
    )


def find_problem(key: str, value: Any) -> str | None:
    """Return why this value cannot be used, or None if it can.

    The operating system refuses some values, and pgsched sets PGSCHED_ variables itself.
    """
    for name in value if key == "env" else ():
        if not name or "=" in name:
            return f"args.env: {name!r} is not the name of a variable"
        if name.startswith("PGSCHED_"):
            return f"args.env: {name} is set by pgsched itself"
    if key == "cwd" and value == "":
        return "args.cwd: must not be empty"
    return None
