"""Executors: how one attempt is run, one package or module for each kind of work."""
