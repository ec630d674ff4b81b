"""The checks: pure functions from a history to lines, each of which describes a broken promise."""
