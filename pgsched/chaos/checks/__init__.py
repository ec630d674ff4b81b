"""Check a history: pure functions that yield one line for each broken promise."""
