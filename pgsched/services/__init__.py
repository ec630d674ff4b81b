"""Services: one function per use case, called by the command line, the console, the API and the test kit alike."""
