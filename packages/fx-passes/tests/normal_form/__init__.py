"""The normal form of graphs."""
