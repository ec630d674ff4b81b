"""The executor of kind `python`."""
