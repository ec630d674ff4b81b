"""Queries about runs (enqueue, claim, settle, dependencies, lists, changes) and about the workers that run them."""
