"""Benchmarks of pgsched and its peers on one server: `python -m bench --help`."""
