"""pgsched with a plain function as its task, which is the usual kind: a thread of the worker calls it."""

from __future__ import annotations

import os
import sys

from bench.peers.pgsched import Pgsched, become_worker
from bench.peers.verbs import main

if __name__ == "__main__":
    if sys.argv[1] == "work":
        os.environ["BENCH_PLAIN"] = "1"
        become_worker()
    main(Pgsched())
