"""`pgsched worker --otel`: set up OpenTelemetry's SDK from its environment variables, where the app does not.

Invariant: OTEL_* variables decide, as they do for every other program. An SDK that the app has set up is left alone.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import Any

from pgsched import log
from pgsched.errors import InputError
from pgsched.telemetry import tracing

logger = log.get("tracing")
GROUP = "opentelemetry_traces_exporter"
OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def set_up(environ: Any = os.environ) -> None:
    """Set up tracing unless the program has done so. Raises InputError where a package is missing."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InputError(
            "otel: needs OpenTelemetry's SDK and an exporter: pip install 'pgsched[otel]' opentelemetry-sdk"
            " opentelemetry-exporter-otlp",
            "otel",
        ) from error
    if tracing.is_enabled():
        logger.info("tracing is set up by the app")
        return
    # the SDK itself reads OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_BSP_* and the limits
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "pgsched-worker"}))
    for exporter in exporters(environ):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def exporters(environ: Any) -> list[Any]:
    """Return the exporters that OTEL_TRACES_EXPORTER names: otlp by default, none for `none`. Raises InputError."""
    found = []
    for given in environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        name = given.strip()
        if name in ("", "none"):
            continue
        if name == "otlp":
            protocol = environ.get(
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
            )
            name = OTLP.get(protocol, "otlp_proto_grpc")
        places = list(entry_points(group=GROUP, name=name))
        if not places:
            raise InputError(
                f"otel: there is no exporter {given.strip()!r} (OTEL_TRACES_EXPORTER):"
                " pip install opentelemetry-exporter-otlp, or name one that is installed",
                "otel",
            )
        found.append(places[0].load()())
    return found
