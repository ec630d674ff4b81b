"""The loop of the raw ceiling before it was tuned, as far as that is known. pgsched's goal was set by that loop.

It claims batches of 500 rows, leaves half of each page free, uses Python's own settings, and decodes each row's JSON by
itself. Its statements are those of `raw`. The tuning of `raw` was learned from making pgsched faster.
"""

from __future__ import annotations

import json

from bench.peers.raw import Raw
from bench.peers.verbs import main


class Raw500(Raw):
    """The raw ceiling before anything was tuned."""

    batch = 500
    fillfactor = 50

    def begin(self) -> None:
        pass

    def read(self, texts: list[str]) -> list[dict[str, int]]:
        return [json.loads(text) for text in texts]


if __name__ == "__main__":
    main(Raw500())
