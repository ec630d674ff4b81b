"""Use cases about runs: one, a page of them, their graph, their output, and a change of many."""
