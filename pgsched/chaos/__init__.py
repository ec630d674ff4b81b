"""Fault injection: real workers on a private server, one fault at a time, and checks of what was recorded.

Invariant: nothing here judges a run while the fault is on. Everything is recorded, and the checks read only the record.
No other part of pgsched imports this package, except the command `pgsched chaos`.
"""
