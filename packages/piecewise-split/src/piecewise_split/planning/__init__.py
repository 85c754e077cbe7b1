"""From a graph and the names of its splitting ops to a plan."""
