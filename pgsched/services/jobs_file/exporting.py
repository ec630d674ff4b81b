"""Export jobs and settings as a file from which a plan finds no difference."""

from __future__ import annotations

from typing import Any

from pgsched.core.jobs_file.model.dumping import dump
from pgsched.core.jobs_file.texts.reading import check_format
from pgsched.core.jobs_file.texts.writing import write_toml, write_yaml
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.files import stored
from pgsched.errors import NotFound
from pgsched.services.jobs_file.state import read_everything


def export(conn: Connection[Any], file_format: str = "yaml", owner: str | None = None) -> tuple[str, list[str]]:
    """Return the text of a file, and what it leaves out, as sentences.

    `file_format`: yaml or toml. `owner`: only what this owner's file declares; None: everything.
    Raises InputError for an unknown format, and for values that TOML cannot hold; NotFound for an unknown owner.
    """
    chosen = check_format(file_format)
    with stored.one_moment(conn) as now:
        if owner is not None and stored.owner_of_name(conn, owner) is None:
            raise NotFound(f'no file has been applied with owner "{owner}"')
        state = read_everything(conn, now)
    found = [one for one in state.stored.values() if owner is None or one.owner == owner]
    data, remarks = dump(found, owner)
    return (write_toml if chosen == "toml" else write_yaml)(data), remarks
