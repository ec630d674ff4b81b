"""The leader: election, its loop, and the duties that one process does for all."""
