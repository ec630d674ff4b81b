"""The executors of kinds `command` and `shell`: child processes that die with their worker."""
