"""Jobs of other schedulers as jobs of pgsched: one module or package for each source.

Invariant: an importer reads text or rows and returns jobs. It runs and imports nothing of the user's.
"""
