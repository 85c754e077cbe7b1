"""Engines that compose graphs and attention updates by hand, and their guards."""
