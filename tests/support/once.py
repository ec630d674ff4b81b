"""What a process has once: logging's and structlog's set-up, the TracerProvider of OpenTelemetry.

The rule: a test that sets any of it leaves the process as it found it, and does not depend on who set it before.
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
    """Afterwards logs go where they went before: `pgsched.log.configure` is for whole processes."""
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
    """Within the block this program traces, with that provider; it is shut down at the end."""
    from opentelemetry import trace

    with pytest.MonkeyPatch.context() as patch:
        # The API lets a program set one, once, and take none back: the next test of this process may not want any.
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        try:
            yield
        finally:
            provider.shutdown()
