"""The rule: `task` is one command line, read by /bin/sh and by nothing else; for those who come from crontab.

`args` is an object with any of `env`, `cwd` and `stdin`. Values that vary belong into `env` ("$NAME" in the line), so
that the shell never reads them as code.
"""

from __future__ import annotations

from pgsched.core.model import Claim, Outcome
from pgsched.errors import InputError
from pgsched.execute.outcomes import refused
from pgsched.execute.subprocess.command import SHELL_KEYS, read
from pgsched.execute.subprocess.program import Processes

SHELL = "/bin/sh"


class ShellExecutor:
    """Runs command lines."""

    abandoned = 0

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def execute(self, claim: Claim) -> Outcome:
        # An empty array is what a client without a better idea sends; the database lets it pass as well.
        args = {} if claim.args == [] else claim.args
        try:
            program = read([SHELL, "-c", claim.task], args, SHELL_KEYS)
        except InputError as error:
            return refused(str(error))
        return await self._processes.run(program, claim)

    async def close(self) -> None:
        await self._processes.close()
