"""The executor of kind `task`, for handlers in Python."""
