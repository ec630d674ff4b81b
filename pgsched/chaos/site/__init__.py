"""Where faults run: private servers, proxies, clocks, networks of their own."""
