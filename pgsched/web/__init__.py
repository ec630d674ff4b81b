"""The console: pages and a JSON API over the functions that the command line calls.

The rule: thin. A page parses what was asked, calls one function, and renders; nothing is decided here.
"""
