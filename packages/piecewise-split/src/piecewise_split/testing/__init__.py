"""Support for tests of code that splits graphs; part of the public interface."""

from piecewise_split.testing.dynamo_graph import dynamo_graph
from piecewise_split.testing.reference_split import reference_split

__all__ = ["dynamo_graph", "reference_split"]
