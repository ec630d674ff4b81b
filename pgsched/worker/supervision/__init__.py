"""Supervision: one parent process and its worker processes."""
