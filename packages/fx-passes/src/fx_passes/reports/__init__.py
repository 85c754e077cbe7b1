"""What a run did and nearly did: reports, observers, and old values compared with new ones."""

from fx_passes.reports.cost_observer import CostObserver
from fx_passes.reports.page_observer import PageObserver

__all__ = ["CostObserver", "PageObserver"]
