"""The schedules of Celery beat: entries of an app's beat_schedule, and the tables of django-celery-beat."""
