"""What a run did and nearly did: reports, observers, and old values held against new ones."""

from fx_passes.reports.page_observer import PageObserver

__all__ = ["PageObserver"]
