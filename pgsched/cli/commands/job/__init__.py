"""The commands of `pgsched job` and `pgsched schedule`."""
