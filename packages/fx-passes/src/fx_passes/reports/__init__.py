"""Reports of a run and its near misses, observers, and comparison of old and new values."""

from fx_passes.reports.cost_observer import CostObserver
from fx_passes.reports.page_observer import PageObserver

__all__ = ["CostObserver", "PageObserver"]
