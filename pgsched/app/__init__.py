"""What declarations and executors need of an app: tasks, options, arguments, and the handler's `Run`."""
