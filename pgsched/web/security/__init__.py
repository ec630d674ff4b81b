"""Who may come in, and what every request must pass."""
