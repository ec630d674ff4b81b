"""Schedules of other schedulers, as sets of numbers, written as cron expressions of ours."""
