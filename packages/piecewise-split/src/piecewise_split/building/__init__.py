"""From a plan to pieces, and from pieces to one flat function."""
