"""Plans captures: their cost, the sizes that fit a device, and the fastest run mode."""
