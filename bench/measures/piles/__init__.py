"""What the leader does, and how late it is."""
