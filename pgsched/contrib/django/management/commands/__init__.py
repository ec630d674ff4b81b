"""`manage.py pgsched`."""
