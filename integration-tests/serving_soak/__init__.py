"""Serving for a long time while the device fails now and then."""
