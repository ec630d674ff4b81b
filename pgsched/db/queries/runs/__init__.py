"""Queries about runs: enqueue, claim, settle, depend, list, change; and about the workers that run them."""
