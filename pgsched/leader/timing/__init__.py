"""Timing: when the leader looks, how it sleeps, and whether it trusts the database's clock."""
