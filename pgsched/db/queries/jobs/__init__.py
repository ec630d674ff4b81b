"""Queries about jobs, and about what people set for them: queues, limits, pauses, calendars, backfills."""
