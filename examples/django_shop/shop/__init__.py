"""A shop: orders, and the work that they make."""
