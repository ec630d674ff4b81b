"""What other frameworks need to live well with pgsched. Each module imports its framework."""
