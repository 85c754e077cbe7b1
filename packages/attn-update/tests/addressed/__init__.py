"""Launches and events by address, on a device that writes down what it is given."""
