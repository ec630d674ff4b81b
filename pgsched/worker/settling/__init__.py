"""Writing outcomes: what waits, in which batches, and what becomes of each."""
