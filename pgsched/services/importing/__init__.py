"""Read the jobs of other schedulers from where they stand: databases, files, and an app of Celery."""
