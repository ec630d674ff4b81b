"""The variables of a command whose names pgsched keeps for itself.

Invariant: no imported job sets one of them, because a worker refuses to run such a job.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgsched.importers.imported import Reason, Remark

OWN = "PGSCHED_"


def split_own(variables: Mapping[str, str]) -> tuple[dict[str, str], list[Remark]]:
    """Return the variables without those that pgsched sets, and a remark for each of these."""
    kept = {name: value for name, value in variables.items() if not name.startswith(OWN)}
    texts = [f"{name[:100]} is left out: pgsched sets such names itself" for name in variables if name not in kept]
    return kept, [Remark(Reason.ENVIRONMENT, text, "args" if kept else None) for text in texts]
