"""Attempts: how a worker runs the claims that it holds."""
