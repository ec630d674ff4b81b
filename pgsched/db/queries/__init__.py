"""Python functions that send the named statements of `sql/*.sql` and return their rows.

Invariant: only these modules, and the plumbing in `pgsched/db`, name a statement. The sub-packages group them: `jobs`,
`runs`, `leader` (the leader's duties) and `reports` (read-only).
"""
