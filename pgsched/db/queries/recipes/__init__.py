"""Statements of locks, the store and item queues."""
