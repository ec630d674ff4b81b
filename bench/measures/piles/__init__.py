"""Measurements of what the leader does under large backlogs, and how late it is."""
