"""CANN's runtime by its C interface, without torch."""
