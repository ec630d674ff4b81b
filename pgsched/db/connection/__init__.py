"""Connections: opened, bounded in time, pooled, classified when they fail."""
