"""`pgsched import`: print the jobs of other schedulers as jobs.yaml."""
