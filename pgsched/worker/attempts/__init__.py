"""Running the attempts that a worker has claimed."""
