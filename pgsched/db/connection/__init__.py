"""Database connections: opened, limited in time, pooled, and their failures classified."""
