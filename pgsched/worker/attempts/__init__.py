"""Attempts: how a worker runs what it has claimed."""
