"""What tests set for their whole process is gone after them."""

from __future__ import annotations

import logging

import pytest
import structlog

from pgsched import log
from pgsched.telemetry import tracing
from tests.support.once import logs_as_found, traced_by


def test_logs_go_where_they_went() -> None:
    before = (logging.lastResort, logging.getLogRecordFactory(), structlog.is_configured())
    with logs_as_found():
        log.configure(fmt="json")
        assert logging.lastResort is not before[0] and structlog.is_configured()
    assert (logging.lastResort, logging.getLogRecordFactory(), structlog.is_configured()) == before


def test_logs_that_were_set_up_stay_so() -> None:
    with logs_as_found():
        log.configure(fmt="json")
        mine = (structlog.get_config()["processors"], logging.lastResort)
        with logs_as_found():
            log.configure(fmt="console")
        assert (structlog.get_config()["processors"], logging.lastResort) == mine


def test_a_program_traces_only_as_long_as_a_test_wants_it() -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    assert not tracing.is_enabled()
    for _ in range(2):
        provider = sdk.TracerProvider()
        with traced_by(provider):
            assert tracing.is_enabled() and trace.get_tracer_provider() is provider
        assert not tracing.is_enabled()
