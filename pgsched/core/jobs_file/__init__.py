"""A file of jobs (jobs.yaml, jobs.toml): its text, its model, and the difference between it and a database.

Invariant: nothing here reads or writes anything. Texts and rows go in; values, differences and texts come out.
"""
