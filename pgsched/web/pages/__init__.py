"""The HTML pages of the console: one module for each subject."""
