"""The executor of kind `shell`: `task` is one command line for /bin/sh, as in a crontab.

Invariant: only /bin/sh reads the command line.

`args` is an object with any of `env`, `cwd` and `stdin`. Put values that vary into `env` ("$NAME" in the line), so that
the shell never reads them as code.
"""

from __future__ import annotations

from pgsched.core.model import Claim, Outcome
from pgsched.errors import InputError
from pgsched.execute.outcomes import refusal_outcome
from pgsched.execute.slot_tokens import fill_slot, is_unknown_zone
from pgsched.execute.subprocess.command import SHELL_KEYS, read_program
from pgsched.execute.subprocess.program import Processes

SHELL = "/bin/sh"


class ShellExecutor:
    """The executor of command lines."""

    abandoned = 0

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def execute(self, claim: Claim) -> Outcome:
        """Run the command line of one claim to its end."""
        try:
            claim = fill_slot(claim)
            # Some clients send an empty array for "no arguments"; the database accepts it as well.
            args = {} if claim.args == [] else claim.args
            program = read_program([SHELL, "-c", claim.task], args, SHELL_KEYS)
        except InputError as error:
            return refusal_outcome(str(error), retry=is_unknown_zone(error))
        return await self._processes.run(program, claim)

    async def close(self) -> None:
        """End the guard of this worker's processes."""
        await self._processes.close()
