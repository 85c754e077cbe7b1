"""Producers of attention's metadata, in the steps of runners."""
