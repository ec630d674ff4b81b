"""The public `App`: what a program uses to register tasks, declare jobs and enqueue runs."""
