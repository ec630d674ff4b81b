"""Choose the reader of a file by its name or by the format that was named."""

from __future__ import annotations

from pgsched.core.jobs_file.texts.document import Document
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

FORMATS = ("yaml", "toml")


def read_document(name: str, content: bytes, file_format: str | None = None) -> Document:
    """Return the values of a file. Raises InputError.

    `file_format`: yaml or toml; None: what the end of the name says, else YAML.
    """
    chosen = check_format(file_format) if file_format is not None else format_of(name)
    if chosen == "toml":
        from pgsched.core.jobs_file.texts.toml_reader import read_toml

        return read_toml(name, content)
    from pgsched.core.jobs_file.texts.yaml_reader import read_yaml

    return read_yaml(name, content)


def format_of(name: str) -> str:
    """Return the format that the end of a file's name says: toml for `.toml`, else yaml."""
    return "toml" if name.lower().endswith(".toml") else "yaml"


def check_format(name: str) -> str:
    """Return the name of a format. Raises InputError for an unknown one."""
    if name not in FORMATS:
        raise InputError(f'format: "{name}" is not one of {", ".join(FORMATS)}{did_you_mean(name, FORMATS)}', "format")
    return name
