"""When the leader looks, and what of the time it believes."""
