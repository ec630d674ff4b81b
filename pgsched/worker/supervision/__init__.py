"""One parent and its worker processes."""
