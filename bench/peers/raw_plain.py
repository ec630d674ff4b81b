"""The raw ceiling's loop as one writes it first: with Python's own settings, and each row's JSON read by itself."""

from __future__ import annotations

import json

from bench.peers.raw import Raw
from bench.peers.verbs import main


class Plain(Raw):
    """Without what a pgsched worker does too."""

    def begin(self) -> None:
        pass

    def read(self, texts: list[str]) -> list[dict[str, int]]:
        return [json.loads(text) for text in texts]


if __name__ == "__main__":
    main(Plain())
