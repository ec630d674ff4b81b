"""The commands for a file of jobs: plan, apply, export."""
