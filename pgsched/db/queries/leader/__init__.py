"""Queries of the leader's duties, with a few that people and workers send about the same tables."""
