"""Finding what a capture cannot record, in an eager run."""
