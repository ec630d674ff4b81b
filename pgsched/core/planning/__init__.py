"""Decide what happens to a job's slots: catch-up, overlap, jitter and backfill."""
