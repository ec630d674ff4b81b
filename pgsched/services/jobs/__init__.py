"""Use cases about jobs: changes, slots and what became of them, backfills, excluded dates, order."""
