"""Forms of the console: a job, and a run with the arguments of its task."""
