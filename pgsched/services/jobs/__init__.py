"""Use cases about jobs: changes, the history of slots, backfills, excluded dates, and order."""
