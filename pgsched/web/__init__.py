"""The web console: HTML pages and a JSON API.

Invariant: the console decides nothing. A page parses the request, calls one function that the command line calls as
well, and renders the result.
"""
