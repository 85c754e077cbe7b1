"""Producers: metadata made on the device for captured attention."""
