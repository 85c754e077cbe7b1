"""What captures cost, which capture sizes fit a device, and which run mode is fastest."""
