"""Plans a split from a graph and the names of its splitting ops."""
