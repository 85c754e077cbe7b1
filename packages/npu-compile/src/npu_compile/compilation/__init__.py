"""From a model to one that is split, fused and ready for capture, and what was done on the way."""
