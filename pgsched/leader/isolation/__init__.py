"""What one row, one job or one duty cannot do stops nothing else."""
