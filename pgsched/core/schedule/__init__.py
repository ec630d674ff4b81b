"""Schedules: grammar, time zones, slots, description in words."""
