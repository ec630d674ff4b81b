"""Turn what a database has into the values of a file, without what is a default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgsched.core.jobs_file.model.columns import COLUMNS, OF_PAUSE, SECTION_OF, SINGLE, What
from pgsched.core.jobs_file.model.entries import Stored
from pgsched.core.jobs_file.model.loading import read_name
from pgsched.core.jobs_file.model.types import JsonValue, WrongValue

NO_NAME = "\x01"  # begins what stands for the name of a job that is gone (sql/declarations.sql); no name has it


def dump(stored: Iterable[Stored], owner: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a file that declares these objects, and what was left out, as sentences.

    `owner`: the owner that the file names; None: it names none.
    """
    data: dict[str, Any] = {} if owner is None else {"owner": owner}
    remarks = []
    by_kind: dict[What, list[Stored]] = {what: [] for what in SECTION_OF}
    for one in stored:
        by_kind[one.what].append(one)
    for what, section in SECTION_OF.items():
        for one in by_kind[what]:
            if one.declared_by is not None:
                remarks.append(f"{what} {one.name} is left out: the code of {one.declared_by} declares it")
                continue
            if (problem := _unreadable(one)) is not None:
                remarks.append(f"{what} {one.name} is left out: {problem}")
                continue
            _put(data, section, one)
    return data if set(data) - {"owner"} else {**data, "jobs": {}}, remarks


def _put(data: dict[str, Any], section: str, one: Stored) -> None:
    values = shown_values(one)
    if one.what in SINGLE:
        if values:
            data[section] = values
    elif one.what is What.PAUSE:
        what, _, name = one.name.partition(" ")
        data.setdefault(section, []).append({"what": what, **({"name": name} if name else {}), **values})
    else:
        data.setdefault(section, {})[one.name] = values


def shown_values(one: Stored) -> dict[str, Any]:
    """Return the columns that differ from their defaults, or that its file decides, as a file has them."""
    columns = COLUMNS[one.what]
    found = {
        name: columns[name].type.show(value)
        for name, value in one.values.items()
        if (value is not None and value != columns[name].default) or name in one.decides
    }
    if one.what is What.JOB and not one.values["paused"]:
        found = {name: value for name, value in found.items() if name not in OF_PAUSE}
    return found


def _unreadable(one: Stored) -> str | None:
    """Return why a file cannot say what an object is; None if it can."""
    named = one.what not in SINGLE and one.name != "all"
    try:
        if named:
            read_name(one.what, one.name.partition(" ")[2] if one.what is What.PAUSE else one.name)
    except WrongValue as problem:
        return f"name: {problem}"
    for column, value in one.values.items():
        if isinstance(value, JsonValue) and isinstance(value.value, str):
            return f"{column}: {value.value}"
    if any(name.startswith(NO_NAME) for name in one.values.get("after") or ()):
        return "after: it waits for a job that is gone"
    return None
