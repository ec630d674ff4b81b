"""What a task declares about its runs beyond plain options: unique keys, a limit, and which failures are retried."""
