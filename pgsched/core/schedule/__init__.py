"""Schedules: grammar, time zones, slots, and description in words."""
