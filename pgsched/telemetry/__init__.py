"""What a process counts and tells: metrics, probes, traces."""
