"""One small adapter per contestant: `python -m bench.peers.NAME VERB`, run by the contestant's own interpreter."""
