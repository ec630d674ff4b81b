"""Statements that only read, for people and metrics."""
