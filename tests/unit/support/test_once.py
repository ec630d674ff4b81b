"""Settings that a test makes for the whole process are restored after the test."""

from __future__ import annotations

import logging

import pytest
import structlog

from pgsched import log
from pgsched.telemetry import tracing
from tests.support.once import logs_as_found, traced_by


def test_logging_is_restored_after_the_block() -> None:
    before = (logging.lastResort, logging.getLogRecordFactory(), structlog.is_configured())
    with logs_as_found():
        log.configure(fmt="json")
        assert logging.lastResort is not before[0] and structlog.is_configured()
    assert (logging.lastResort, logging.getLogRecordFactory(), structlog.is_configured()) == before


def test_an_earlier_configuration_of_logging_is_restored() -> None:
    with logs_as_found():
        log.configure(fmt="json")
        mine = (structlog.get_config()["processors"], logging.lastResort)
        with logs_as_found():
            log.configure(fmt="console")
        assert (structlog.get_config()["processors"], logging.lastResort) == mine


def test_tracing_is_on_only_within_the_block() -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    assert not tracing.is_enabled()
    for _ in range(2):
        provider = sdk.TracerProvider()
        with traced_by(provider):
            assert tracing.is_enabled() and trace.get_tracer_provider() is provider
        assert not tracing.is_enabled()
