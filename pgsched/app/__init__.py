"""What declarations and executors need of an application: tasks, options, arguments, the handler's `Run`."""
