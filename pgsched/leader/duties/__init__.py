"""The duties of the leader, one class each, grouped by what they work on."""
