"""Updates of attention, producers of metadata and layer events in graphs that run together."""
