"""The commands of the `pgsched` program: one module for each noun, such as `queue`."""
