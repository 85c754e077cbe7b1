"""Inputs of a replay compared in one call of C, where a C compiler and Python's headers are."""
