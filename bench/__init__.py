"""What pgsched can do, measured beside its peers on one server: `python -m bench --help`."""
