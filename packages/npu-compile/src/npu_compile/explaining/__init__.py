"""Shows what is done to a model, without running it."""
