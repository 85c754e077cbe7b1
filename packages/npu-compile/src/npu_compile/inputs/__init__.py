"""Inputs of a step: how they are declared, placed, packed and copied."""
