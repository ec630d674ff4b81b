"""Access to the console: login, sessions, tokens, and the checks that every request passes."""
