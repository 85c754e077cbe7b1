"""The graph that Dynamo passes to a backend, for tests of code that splits graphs."""

from piecewise_split.testing.dynamo_graph import dynamo_graph

__all__ = ["dynamo_graph"]
