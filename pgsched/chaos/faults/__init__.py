"""The faults; each module declares its own with `@fault`."""
