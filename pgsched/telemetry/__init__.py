"""Telemetry of one process: its metrics, health probes and traces."""
