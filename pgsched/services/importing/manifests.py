"""Read manifests of Kubernetes: files, directories, and standard input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pgsched.errors import InputError
from pgsched.importers.imported import Imported, Omitted, Reason, Remark, merge_imported
from pgsched.importers.kubernetes.cronjobs import ManifestNames, ManifestOptions, import_cronjobs
from pgsched.services.importing.text_files import MIB, decode_text, read_text_file, walk_files

MOST_BYTES = 16 * MIB
ENDINGS = (".yaml", ".yml", ".json")


def read_manifests(paths: Sequence[str], options: ManifestOptions, standard_input: bytes = b"") -> Imported:
    """Return the jobs of the CronJobs in files and directories; `-` is `standard_input`. Raises InputError.

    A file of a directory that cannot be read is omitted; one that is named is refused.
    """
    return merge_imported(_read_parts(paths, options, standard_input))


def _read_parts(paths: Sequence[str], options: ManifestOptions, standard_input: bytes) -> Iterator[Imported]:
    names, alone = ManifestNames(), len(paths) == 1
    for given in paths:
        path = Path(given)
        if given == "-":
            text = decode_text(standard_input, "standard input", MOST_BYTES)
            yield import_cronjobs(text, options, names)
        elif path.is_dir():
            for file in walk_files(path, ENDINGS):
                yield _read(file, str(file.relative_to(path)), options, names)
        else:
            label = "" if alone else given
            yield import_cronjobs(read_text_file(path, MOST_BYTES), replace(options, label=label), names)


def _read(file: Path, label: str, options: ManifestOptions, names: ManifestNames) -> Imported:
    try:
        text = read_text_file(file, MOST_BYTES)
    except InputError as error:
        why = str(error).removeprefix(f"{file}: ")
        return Imported(omitted=[Omitted(label, "", Remark(Reason.UNREADABLE, why))])
    return import_cronjobs(text, replace(options, label=label), names)
