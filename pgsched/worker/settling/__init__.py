"""Settling: which outcomes wait, in which batches they are written, and what follows from each result."""
