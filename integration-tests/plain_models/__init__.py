"""Decoders of transformers, in plain torch, compiled with raising in every mode."""
