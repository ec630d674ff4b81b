"""Alerting: how the leader finds incidents, and how sinks report them to people."""
