"""Incidents: how the leader finds them, and how people are told."""
