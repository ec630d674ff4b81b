"""Statements about runs: enqueue, claim, settle, read."""
