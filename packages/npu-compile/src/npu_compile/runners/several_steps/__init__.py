"""Several steps of a model in one graph: their inputs, lengths and tokens."""
