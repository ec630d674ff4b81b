"""The commands of `pgsched run`."""
