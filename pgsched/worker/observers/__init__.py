"""Who learns what becomes of claims and attempts: metrics and tracing."""
