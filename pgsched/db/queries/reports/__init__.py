"""Queries that only read: reports for people, and figures for metrics."""
