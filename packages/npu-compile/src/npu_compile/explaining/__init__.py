"""What is done to a model, shown without running it."""
