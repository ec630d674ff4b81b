"""The raw ceiling's loop as it was when the goal was set by it: batches of 500 rows, half of each page free, Python's
own settings, each row's JSON read by itself.

What makes it faster was found by making pgsched faster: `raw` has all of that too.
"""

from __future__ import annotations

import json

from bench.peers.raw import Raw
from bench.peers.verbs import main


class Raw500(Raw):
    """Before anything was tuned."""

    batch = 500
    fillfactor = 50

    def begin(self) -> None:
        pass

    def read(self, texts: list[str]) -> list[dict[str, int]]:
        return [json.loads(text) for text in texts]


if __name__ == "__main__":
    main(Raw500())
