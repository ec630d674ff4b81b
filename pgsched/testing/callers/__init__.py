"""The transactions of callers that enqueue on a connection of their own, as the recorder sees them."""
