"""Timers of systemd and the services that they start."""
