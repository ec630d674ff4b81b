"""Isolation: an error in one row, one job or one duty stops nothing else."""
