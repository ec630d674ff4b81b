"""Proof under fire: real worker processes on a private server, one fault at a time, and a checker of what was recorded.

The rule: nothing here decides whether a run went well while the fault is on; everything is written down, and the checks
read what was written, alone. No other part of pgsched imports this package.
"""
