"""Compares the inputs of a replay in one C call, if a C compiler and Python's headers exist."""
