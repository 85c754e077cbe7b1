"""Tests of the dialects of engines."""
