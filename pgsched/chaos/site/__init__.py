"""Where faults run: private servers, proxies, clocks, and network namespaces."""
