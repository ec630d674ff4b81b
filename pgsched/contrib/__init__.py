"""Integrations with other frameworks. Each module imports its framework."""
