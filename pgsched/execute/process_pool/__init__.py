"""Child processes that run Python handlers."""
