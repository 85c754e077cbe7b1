"""Converts graphs that write memory to functional graphs and back."""

from fx_passes.functional.functional_backend import FunctionalBackend
from fx_passes.functional.reinplace import ReinplacePass

__all__ = ["FunctionalBackend", "ReinplacePass"]
