"""Claiming runs: when to ask, in which queues, where to start, and what to do when an answer is lost."""
