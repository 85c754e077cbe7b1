"""From requests to steps of the model and back to tokens."""
