"""Statements about jobs and what people set beside them."""
