"""One small adapter a contestant: `python -m bench.peers.NAME VERB`, run by the contestant's own interpreter."""
