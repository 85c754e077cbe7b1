"""Reports of a run and its near misses, observers, and comparison of old and new values."""

from fx_passes.reports.observers import CostObserver
from fx_passes.reports.report_page import PageObserver

__all__ = ["CostObserver", "PageObserver"]
