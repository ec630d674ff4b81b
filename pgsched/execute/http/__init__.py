"""The executor of kind `http`."""
