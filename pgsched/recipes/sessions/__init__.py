"""Sessions of this process: opened, renewed and ended by one thread, for all that hangs on them."""
