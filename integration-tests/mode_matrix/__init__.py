"""Every mode on every kind of step, compared with eager runs; the document of the results."""
