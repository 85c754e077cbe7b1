"""Tests of what plans the memory and sizes of graphs."""
