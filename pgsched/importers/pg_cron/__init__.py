"""The jobs of pg_cron, from the rows of its table cron.job."""
