"""`pgsched import`: jobs of other schedulers, one module for each kind of source."""
