"""Whole models of transformers, raised."""
