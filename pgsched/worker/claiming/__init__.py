"""Claiming runs: when to ask, where to start, what to do when an answer is lost."""
