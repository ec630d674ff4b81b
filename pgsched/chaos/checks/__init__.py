"""The checks: pure functions from a history to the lines that say what in it breaks a promise."""
