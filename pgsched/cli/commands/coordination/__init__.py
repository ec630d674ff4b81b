"""Commands about what programs coordinate with: locks, elections and the store."""
