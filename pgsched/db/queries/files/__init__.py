"""Queries for files of jobs: what the database has, and writing many objects with few statements."""
