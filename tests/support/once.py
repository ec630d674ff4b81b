"""What exists once in a process: the set-up of logging and structlog, and OpenTelemetry's TracerProvider.

Invariant: a test that changes one of these restores it afterwards, and does not depend on what earlier tests set.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog


@contextmanager
def logs_as_found() -> Iterator[None]:
    """Restore the set-up of logs afterwards, because `pgsched.log.configure` changes it for the whole process."""
    last, factory = logging.lastResort, logging.getLogRecordFactory()
    found = structlog.get_config() if structlog.is_configured() else None
    try:
        yield
    finally:
        logging.lastResort = last
        logging.setLogRecordFactory(factory)
        if found is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**found)


@contextmanager
def traced_by(provider: Any) -> Iterator[None]:
    """Let this process trace with that provider within the block, and shut the provider down afterwards."""
    from opentelemetry import trace

    with pytest.MonkeyPatch.context() as patch:
        # The public API sets a provider once and for good. The next test of this process may need none.
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        try:
            yield
        finally:
            provider.shutdown()
