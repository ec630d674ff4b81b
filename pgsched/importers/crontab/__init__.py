"""Crontabs: of users, of the system, and files of /etc/cron.d."""
