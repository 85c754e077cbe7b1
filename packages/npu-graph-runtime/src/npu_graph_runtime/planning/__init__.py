"""Which capture sizes fit a device: what captures cost, forecast from the first two of them."""
