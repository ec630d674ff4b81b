"""The duties of the leader, one class each, grouped by their subject."""
