"""Output of attempts: recorded, bounded and relayed."""
