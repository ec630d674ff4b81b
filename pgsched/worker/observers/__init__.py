"""Observers of claims and attempts: metrics and tracing."""
