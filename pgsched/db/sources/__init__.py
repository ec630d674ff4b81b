"""Tables of other schedulers, which only importers read."""
