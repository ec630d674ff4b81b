"""Use cases about runs: one run, pages of runs, graphs, output, and changes of many runs."""
