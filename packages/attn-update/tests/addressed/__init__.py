"""Tests of launches and events by address, on a device that records its calls."""
