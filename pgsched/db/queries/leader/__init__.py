"""Statements that only the leader sends."""
