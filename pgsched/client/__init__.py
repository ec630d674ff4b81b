"""The public `App`."""
