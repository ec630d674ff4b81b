"""A supervisor passes the embedded database to its workers only if nothing else names a database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import typer

from pgsched.cli.commands import worker
from pgsched.worker.supervision import supervisor

DSN = "postgresql://h/a"


@pytest.mark.parametrize(
    ("flag", "environ", "app", "told"),
    [
        (None, {}, None, "embedded"),
        (None, {}, ["shop:app"], None),  # the app may name a database of its own
        (None, {"PGHOST": "h"}, ["shop:app"], None),
        (None, {"PGSCHED_DSN": DSN}, None, None),
        (DSN, {}, None, None),
    ],
)
def test_workers_get_the_embedded_database_only_without_dsn_and_app(
    flag: str | None, environ: dict[str, str], app: list[str] | None, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def embedded(_: str | None) -> Iterator[str]:
        yield "embedded"

    asked: list[tuple[int, str | None]] = []
    for name in ("PGSCHED_DSN", "DATABASE_URL", "PGHOST", "PGSERVICE", "PGHOSTADDR", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(worker, "migrated_database", embedded)
    monkeypatch.setattr(supervisor, "supervise", lambda processes, dsn, *_: asked.append((processes, dsn)) or 0)
    with pytest.raises(typer.Exit):
        worker.supervise(2, flag, app, None, None)
    assert asked == [(2, told)]
