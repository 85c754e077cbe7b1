"""Pictures of command results, drawn with matplotlib (extra ``plot``)."""
