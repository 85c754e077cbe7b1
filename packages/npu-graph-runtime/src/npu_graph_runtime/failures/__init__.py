"""Failures of the device: their codes, and the errors that say what to do."""
