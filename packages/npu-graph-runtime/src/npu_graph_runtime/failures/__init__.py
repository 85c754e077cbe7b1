"""Device failures: error codes, diagnosis, and comparison of graphs with eager runs."""
