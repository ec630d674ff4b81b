"""From a job's slots to decisions: catch-up, overlap, jitter, backfill."""
